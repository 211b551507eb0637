# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A module is rewritten so that XLA combines the groups, or is refused."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses

import pytest

import combine_text
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.flags import debug_options
from lagom_xla.passes import collectives
from lagom_xla.passes import combine
from lagom_xla.passes import hlo
from lagom_xla.passes.combine import combinable
from lagom_xla.passes.combine import table
from lagom_xla.xla_schedule import reschedule

_CLUSTER = cluster_lib.parse("1x8xh100")


@pytest.mark.parametrize(
  ("groups", "message"),
  [
    (
      (("gx", "absent"),),
      "absent is no collective that can be combined: there are gx, gy, half",
    ),
    ((("gx", "gx"),), "gx is named twice in the combine groups"),
    ((("gx", "gy"), ("gy",)), "gy is named twice in the combine groups"),
    ((("gx", "sx"),), "gx and sx cannot be combined: they differ in kind"),
    (
      (("gx", "half"),),
      "gx and half cannot be combined: they differ in groups of devices",
    ),
    (
      (("sy", "my"),),
      "sy and my cannot be combined: they differ in reduction (add and max",
    ),
    (
      (("sx", "ssx"),),
      "sx and ssx cannot be combined: ssx depends on sx.",
    ),
    (
      (("sx", "ssy"), ("sy", "ssx")),
      "The combine groups {sx and ssy} and {sy and ssx} cannot be there",
    ),
  ],
)
def test_groups_that_cannot_be_are_refused_with_the_labels(
  groups: combine.Groups, message: str
) -> None:
  with pytest.raises(errors.CombineError) as error:
    combine.rewrite(hlo.load(combine_text.HLO), groups)
  assert message in str(error.value)
  assert "\n" not in str(error.value)


def test_a_collective_of_several_arrays_is_several_candidates() -> None:
  candidates = combinable.find(hlo.load(combine_text.HLO))
  assert {"both.0", "both.1"} <= set(candidates)
  assert "both" not in candidates
  # Each depends on what its own array depends on.
  combinable.check(candidates, (("sx", "both.0"), ("ssx", "both.1")))
  with pytest.raises(errors.CombineError, match=r"both\.1 depends on sx"):
    combinable.check(candidates, (("sx", "both.1"),))


def test_a_module_stays_as_it_is() -> None:
  module = hlo.load(combine_text.HLO)
  before = module.proto.SerializeToString(deterministic=True)
  rewritten = hlo.load(combine.rewrite(module, (("gx", "gy"),)))
  assert module.proto.SerializeToString(deterministic=True) == before
  keys = {
    combine.label_of(i)
    for i in rewritten.entry.instructions
    if i.opcode == "all-gather"
  }
  assert keys == {"gx", "half"}


def test_thresholds_that_were_asked_for_do_not_count() -> None:
  asked = {"xla_gpu_all_gather_combine_threshold_bytes": 1, "xla_other": 2}
  options = combine.options((), asked)
  assert options["xla_other"] == 2
  assert options["xla_gpu_all_gather_combine_threshold_bytes"] >= 2**50
  assert combine.options((), asked) == options
  assert combine.options((("a", "b"),), asked) != options


def test_an_all_reduce_of_an_all_reduce_is_left_to_xla() -> None:
  rows, columns = "{{0,1,2,3},{4,5,6,7}}", "{{0,4},{1,5},{2,6},{3,7}}"

  def reduced_over(first: str, second: str) -> hlo.Module:
    return hlo_text.load(f"""
      x = f32[8] parameter(0)
      once = f32[8] all-reduce(x), replica_groups={first},
        channel_id=1, use_global_device_ids=true, to_apply=add
      ROOT twice = f32[8] all-reduce(once), replica_groups={second},
        channel_id=2, use_global_device_ids=true, to_apply=add
    """)

  assert not combinable.find(reduced_over(rows, columns))
  # Counting devices twice, the two are not one.
  repeats = reduced_over(rows, rows)
  assert set(combinable.find(repeats)) == {"once", "twice"}


def test_bytes_are_those_of_what_a_collective_returns() -> None:
  candidates = combinable.find(hlo.load(combine_text.HLO))
  assert candidates["gx"].num_bytes == 64 * 64 * 4
  assert candidates["sx"].num_bytes == 8 * 64 * 4


def _of_two_strands(second_key: str) -> hlo.Module:
  """Two all-gathers side by side, each with a key."""
  keys = {"one": "strand 0", "other": second_key}
  lines = []
  for name, key in keys.items():
    start, done = hlo_text.all_gather(name, 64 * 2**10)
    lines += [f'{start}, frontend_attributes={{combiner_key="{key}"}}', done]
  return hlo_text.load("\n".join([*lines, "ROOT end = () tuple()"]))


def test_a_key_that_the_program_has_is_no_label() -> None:
  module = _of_two_strands("strand 1")
  assert len(collectives.find(module)) == 2
  assert not combine.labels(module)


@pytest.mark.parametrize(("second", "num_left"), [("0", 1), ("1", 2)])
def test_collectives_of_other_keys_are_foreseen_to_stay_apart(
  second: str, num_left: int
) -> None:
  module = _of_two_strands(f"strand {second}")
  changes = reschedule.Changes(thresholds_bytes={"all-gather": 128 * 2**20})
  combined = reschedule.reschedule(module, changes, _CLUSTER)
  assert len(collectives.find(combined)) == num_left


def test_groups_decide_whatever_keys_the_program_has() -> None:
  module = hlo.load(combine_text.HLO)
  for instruction in module.entry.instructions:
    if instruction.name in ("gx", "gy"):
      key = f"strand {instruction.name}"
      instruction.frontend_attributes.map["combiner_key"] = key
  rewritten = hlo.load(combine.rewrite(module, (("gx", "gy"),)))
  labels = {
    combine.label_of(i)
    for i in rewritten.entry.instructions
    if i.name in ("gx", "gy")
  }
  assert labels == {"gx"}


@pytest.mark.parametrize("kind", table.COMBINERS)
def test_options_and_defaults_are_those_of_the_installed_xla(
  kind: str,
) -> None:
  combiner = table.COMBINERS[kind]
  option = debug_options.find(combiner.option)
  assert option is not None
  assert option.default == combiner.default_bytes


@dataclasses.dataclass(frozen=True)
class _Array:
  """An all-gather of a type of its own or of the others'."""

  name: str
  num_bytes: int
  traits: table.Traits = ()
  kind: str = "all-gather"


def _filled(
  arrays: Sequence[_Array],
  threshold_bytes: int,
  after: Sequence[tuple[str, str]] = (),
) -> list[str]:
  groups = table.fill(
    arrays,
    {"all-gather": threshold_bytes},
    depends=lambda array, others: any(
      (array.name, other.name) in after for other in others
    ),
  )
  return ["".join(array.name for array in group) for group in groups]


@pytest.mark.parametrize(
  ("threshold_bytes", "groups"),
  [
    (0, ["a", "b", "c", "d", "e"]),
    (4, ["a", "c", "b", "d", "e"]),
    # One that is too large stays alone; those around it are still combined.
    (8, ["c", "ab", "de"]),
    # It is the first one without room that begins the next group.
    (40, ["ab", "cd", "e"]),
    (100, ["abcde"]),
  ],
)
def test_groups_are_filled_up_to_the_threshold(
  threshold_bytes: int, groups: list[str]
) -> None:
  arrays = [_Array(n, 36 if n == "c" else 4) for n in "abcde"]
  assert _filled(arrays, threshold_bytes) == groups


def test_what_differs_in_a_trait_is_passed_over() -> None:
  pipelined = (("pipelining", True),)
  arrays = [_Array("a", 4), _Array("b", 4, pipelined), _Array("c", 4)]
  assert _filled(arrays, 8) == ["ac", "b"]
  assert table.difference(pipelined, (("pipelining", False),)) == (
    "pipelining", True, False,
  )  # fmt: skip


def test_what_depends_on_a_member_begins_the_next_group() -> None:
  arrays = [_Array(name, 4) for name in "abc"]
  assert _filled(arrays, 100, after=[("b", "a")]) == ["a", "bc"]
