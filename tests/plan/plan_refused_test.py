# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What is no plan, or a damaged one, is refused with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lagom_xla import errors
from lagom_xla import plan as plan_lib
from sample_plan import PLAN


@pytest.mark.parametrize(
  ("text", "reason"),
  [
    ("", "is not JSON"),
    ("{", "is not JSON"),
    ("\xff\xfe", "is not UTF-8 text"),
    ("[]", "is not a lagom_xla plan"),
    ('"plan"', "is not a lagom_xla plan"),
    ("{}", "is not a lagom_xla plan"),
    ('{"format_version": 999}', "has format version 999"),
    (
      '{"format_version": 4}',
      "has format version 4; this lagom_xla reads 5. Make the plan again.",
    ),
    ('{"format_version": "5"}', 'has format version "5"'),
    ('{"format_version": 5}', "module_name is missing"),
  ],
)
def test_what_is_no_plan_is_refused_by_name(tmp_path, text, reason):
  path = tmp_path / "plan.json"
  path.write_bytes(text.encode("latin-1"))
  with pytest.raises(errors.PlanError) as caught:
    plan_lib.load(tmp_path)
  assert str(path) in str(caught.value)
  assert reason in str(caught.value)


def test_a_folder_without_a_plan_is_refused_by_name(tmp_path):
  with pytest.raises(errors.PlanError) as caught:
    plan_lib.load(tmp_path)
  assert str(tmp_path / "plan.json") in str(caught.value)
  assert "No such file" in str(caught.value)


def _paths(raw: Any) -> Iterator[tuple[str | int, ...]]:
  """The paths of all fields of nested objects."""
  if isinstance(raw, dict):
    for field, value in raw.items():
      yield (field,)
      yield from ((field, *path) for path in _paths(value))
  elif isinstance(raw, list):
    for index, value in enumerate(raw):
      yield from ((index, *path) for path in _paths(value))


def _is_free(path: tuple[str | int, ...]) -> bool:
  """Whether a path leads to an entry that need not be there."""
  peaks = "matmul_peak_tflops"
  return path[0] == "nccl_env" or path[-2:-1] in [("options",), (peaks,)]


@pytest.mark.parametrize(
  "path",
  [
    p
    for p in _paths(PLAN.to_dict())
    # Plans that are older than profiles have none.
    if p != ("profile",) and (len(p) == 1 or not _is_free(p))
  ],
  ids=lambda path: ".".join(map(str, path)),
)
def test_a_plan_that_lacks_a_field_is_refused_by_its_name(path):
  raw = part = PLAN.to_dict()
  for step in path[:-1]:
    part = part[step]
  del part[path[-1]]
  with pytest.raises(errors.PlanError, match=r"here\.json") as caught:
    plan_lib.from_dict(raw, where="here.json")
  if path != ("format_version",):
    assert f"{path[-1]} is missing" in str(caught.value)


def _set(*path: str | int) -> Callable[[dict[str, Any], Any], None]:
  def change(raw: Any, value: Any) -> None:
    for step in path[:-1]:
      raw = raw[step]
    raw[path[-1]] = value

  return change


@pytest.mark.parametrize(
  ("change", "value", "reason"),
  [
    (_set("module_name"), 7, "module_name is 7; it must be text"),
    (
      _set("module_name"),
      "a\nrm -rf b",
      r'module_name is "a\\nrm -rf b"; it must be one line of printable text',
    ),
    (_set("cluster", "name"), "a\nrm -rf b", "cluster.name is .* one line"),
    (
      _set("cluster", "gpu", "num_sms"),
      -1,
      r"cluster\.gpu\.num_sms is -1; it must be a whole number above 0,",
    ),
    (
      _set("cluster", "gpu", "registers_per_block"),
      2**30,
      r"registers_per_block is 1073741824; it must not exceed",
    ),
    (_set("more"), 0, "more is unknown; known: format_version, module_name,"),
    (_set("xla"), 3, "xla is 3; it must be an object"),
    (_set("xla", "more"), 0, r"xla\.more is unknown; known: program, options"),
    (
      _set("xla", "program", "strands"),
      "plaited",
      r'strands is "plaited"; it must be one of none, merged, staggered, rotat',
    ),
    (
      _set("xla", "program", "slices"),
      {"mlp": 1},
      r'xla\.program\.slices has 1 for "mlp"; a chain is cut into two',
    ),
    (_set("xla", "options"), 3, r"xla\.options is 3; it must be an object"),
    (
      _set("xla", "options", "a b"),
      1,
      r'xla\.options has "a b", which is no name of a setting',
    ),
    (
      _set("xla", "options", "a"),
      [1],
      r"xla\.options\.a is \[1\]; it must be true or false, a whole number,"
      r" a number or text",
    ),
    (
      _set("xla", "options", "a"),
      float("nan"),
      r"xla\.options\.a is NaN; it must be true or false",
    ),
    (
      _set("xla", "combine_groups"),
      3,
      r"xla\.combine_groups is 3; it must be a list or null",
    ),
    (
      _set("xla", "combine_groups"),
      ["all-gather"],
      r'xla\.combine_groups\[0\] is "all-gather"; it must be a list',
    ),
    (
      _set("xla", "combine_groups"),
      [["all-gather", 3]],
      r"xla\.combine_groups\[0\]\[1\] is 3; it must be text",
    ),
    (
      _set("xla", "scheduler_profile"),
      3,
      r"xla\.scheduler_profile is 3; it must be text or null",
    ),
    (
      _set("xla", "orders"),
      {"body": ["a", 3]},
      r"xla\.orders\.body\[1\] is 3; it must be text",
    ),
    (
      _set("nccl_env", "NCCL_MAX_CTAS"),
      8,
      r"nccl_env\.NCCL_MAX_CTAS is 8; it must be text",
    ),
    (_set("nccl_env", "A; rm"), "8", 'nccl_env has "A; rm", which is no name'),
    (_set("nccl_settings"), 3, "nccl_settings is 3; it must be a list"),
    (
      _set("nccl_settings", 0),
      3,
      r"nccl_settings\[0\] is 3; it must be an object",
    ),
    (
      _set("nccl_settings", 0, "key", "num_ranks"),
      0,
      r"nccl_settings\[0\]\.key\.num_ranks is 0; it must be a whole number",
    ),
    (
      _set("nccl_settings", 0, "more"),
      0,
      r"nccl_settings\[0\]\.more is unknown; known: key, calls,",
    ),
    (_set("nccl_settings", 0, "calls"), 4, "calls is 4; it must be a list"),
    (
      _set("nccl_settings", 0, "calls"),
      [4],
      r"calls\[0\] is 4; it must be an object",
    ),
    (
      _set("nccl_settings", 0, "calls"),
      [{}],
      r"calls\[0\]\.num_bytes is missing",
    ),
    (
      _set("nccl_settings", 0, "calls", 0, "num_bytes"),
      0,
      r"calls\[0\]\.num_bytes is 0; it must be a whole number above 0",
    ),
    (
      _set("nccl_settings", 0, "calls"),
      [{"num_bytes": 7, "num_arrays": n} for n in (1, 2)],
      "two of nccl_settings are for calls of 7 bytes of all-gather",
    ),
    (_set("nccl_settings", 0, "setting"), {}, "algorithm is missing"),
    (
      _set("nccl_settings", 0, "setting", "num_channels"),
      "4",
      r'setting\.num_channels is "4"; it must be a whole number above 0',
    ),
    (
      _set("nccl_settings", 0, "setting", "num_channels"),
      0,
      r"setting\.num_channels is 0; it must be a whole number above 0",
    ),
    (_set("prediction"), 3, "prediction is 3; it must be an object"),
    (
      _set("prediction", "xla_us"),
      "fast",
      r'prediction\.xla_us is "fast"; it must be a number, at least 0',
    ),
  ],
)
def test_a_damaged_plan_is_refused_with_the_reason(change, value, reason):
  raw = PLAN.to_dict()
  change(raw, value)
  with pytest.raises(errors.PlanError, match=reason) as caught:
    plan_lib.from_dict(raw, where="here.json")
  assert str(caught.value).startswith("here.json is not a usable plan: ")
  assert str(caught.value).endswith("Make the plan again.")
  assert "\n" not in str(caught.value)


def test_a_misspelt_field_is_told_rather_than_the_one_that_is_missing():
  raw = PLAN.to_dict()
  raw["nccl_enviroment"] = raw.pop("nccl_env")
  with pytest.raises(errors.PlanError, match="nccl_enviroment is unknown"):
    plan_lib.from_dict(raw, where="here.json")
