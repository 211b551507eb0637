# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Collectives by copy engines and symmetric kernels, selected by XLA_FLAGS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
import importlib.metadata
import re

import hypothesis
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fake_target
import gather_steps
from gather_steps import H100
from gather_steps import MIB
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import routes
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.nccl import symmetric
from lagom_xla.explain import explaining
from lagom_xla.flags import collective_routes
from lagom_xla.passes import hlo
from lagom_xla.report import explanations
from lagom_xla.report import instructions
from lagom_xla.report import notes
from lagom_xla.report import results
from lagom_xla.search.nccl import settings
from lagom_xla.search.xla import arms
from lagom_xla.search.xla import evaluation
from lagom_xla.tuner import tuner

FLAG = collective_routes.SYMMETRIC
KINDS = collective_routes.SYMMETRIC_KINDS

Scheduled = Callable[..., hlo.Module]


def _sharded(devices: Sequence[jax.Device]) -> jax.stages.Lowered:
  """Sharded weights gathered beside products, their gradient scattered."""
  mesh = jax.sharding.Mesh(np.array(devices), ("d",))
  split = jax.sharding.PartitionSpec("d")

  def each(x: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    y = x @ jax.lax.all_gather(weights, "d", tiled=True)
    gradient = jax.lax.psum_scatter(x.T @ jnp.sin(y), "d", tiled=True)
    moved = jax.lax.ppermute(y, "d", [(i, (i + 1) % 8) for i in range(8)])
    return jnp.cos(moved), gradient

  function = jax.shard_map(
    each, mesh=mesh, in_specs=split, out_specs=split, check_vma=False
  )
  array = jax.ShapeDtypeStruct(
    (8 * 4096, 4096),
    jnp.bfloat16,
    sharding=jax.sharding.NamedSharding(mesh, split),
  )
  weights = jax.ShapeDtypeStruct(
    (4096, 4096), jnp.bfloat16, sharding=array.sharding
  )
  return jax.jit(function).lower(array, weights)


@pytest.fixture(scope="module")
def step(h100s: Sequence[jax.Device], scheduled: Scheduled) -> step_lib.Step:
  return step_lib.of_module(scheduled(_sharded(h100s)), H100)


def _asked(**options: object) -> routes.Asked:
  asked = evaluation.asked(options)
  return dataclasses.replace(asked, nccl_version=(2, 30, 7))


def _costs(step: step_lib.Step) -> dict[str, tuple[str, int]]:
  """By kind: what runs it, and its number of SMs."""
  return {
    key.kind: (route.by, route.cost.num_channels)
    for key, route in step.routes.items()
  }


def test_the_symmetric_flag_makes_xla_copy_arguments_into_windows(
  h100s: Sequence[jax.Device], scheduled: Scheduled, step: step_lib.Step
) -> None:
  with_it = scheduled(_sharded(h100s), **{FLAG: True})
  copies = [
    sum(i.opcode == "copy" for c in module.sequences for i in c.instructions)
    for module in (step.analysis.module, with_it)
  ]
  assert copies[1] > copies[0]


def test_symmetric_gathers_take_no_sm_and_scatters_only_a_few(
  step: step_lib.Step,
) -> None:
  assert not step.routes
  assert _costs(step.asking(_asked(**{FLAG: True}))) == {
    "all-gather": ("copy engines", 0),
    "reduce-scatter": ("symmetric kernel", 2),
  }


def test_a_list_of_kinds_selects_kernels_within_its_byte_limits(
  step: step_lib.Step,
) -> None:
  listed = step.asking(_asked(**{KINDS: "AllGather,ReduceScatter:1024:bf16"}))
  assert _costs(listed) == {"all-gather": ("symmetric kernel", 2)}


def test_inspection_under_the_symmetric_flag_differs_and_says_why(
  step: step_lib.Step, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.setenv("XLA_FLAGS", f"--{FLAG}=true")
  found = step.asking(evaluation.asked({}))
  before, after = (s.timeline(s.default).step_time_us for s in (step, found))
  assert before != after
  text = " ".join(notes.route_notes(found))
  assert "by copy engines (no SM)" in text
  assert "XLA_PYTHON_CLIENT_MEM_FRACTION" in text
  assert not list(notes.route_notes(step))


def test_inspect_and_explain_name_the_engine_of_each_collective(
  step: step_lib.Step,
) -> None:
  def told(found: step_lib.Step) -> dict[str, tuple[str, int]]:
    return {
      one.kind: (one.run_by, one.num_sms)
      for one in results.inspection(found).collectives
    }

  found = step.asking(_asked(**{FLAG: True}))
  assert {by for by, _ in told(step).values()} == {"NCCL"}
  assert told(found).items() >= _costs(found).items()
  text = str([*instructions.of_step(found).values()])
  assert "over 8 GPUs, by copy engines" in text
  explained = explaining.of_step(found)
  (gather,) = (
    one for one in explained.before.collectives if one.kind == "all-gather"
  )
  assert (gather.run_by, gather.num_sms) == ("copy engines", 0)
  said = [str(line) for line in explanations.of_step(explained, "explain")]
  assert (
    "NCCL settings do not affect 1 all-gather by copy engines (no SM) and 1"
    " reduce-scatter by a symmetric kernel (2 SMs)." in said
  )
  said = [str(s) for s in explanations.of_collective(explained, gather.name)]
  assert (
    "It is run by copy engines (no SM): NCCL settings do not affect it." in said
  )
  assert "affect" not in str(
    [*explanations.of_step(explaining.of_step(step), "explain")]
  )


def test_no_setting_is_planned_for_collectives_that_ask_no_tuner(
  step: step_lib.Step,
) -> None:
  found = step.asking(_asked(**{FLAG: True}))
  assert all(not found.calls[key] for key in found.routes)
  chosen = settings.search(found).configuration
  assert all(chosen[key] == found.default[key] for key in found.routes)


def test_the_local_copy_flag_moves_permutes_to_copy_engines(
  step: step_lib.Step,
) -> None:
  found = step.asking(_asked(**{collective_routes.LOCAL_COPIES: True}))
  assert _costs(found) == {"collective-permute": ("copy engines", 0)}


def test_a_note_says_that_registered_buffers_are_not_costed(
  step: step_lib.Step, monkeypatch: pytest.MonkeyPatch
) -> None:
  name = collective_routes.REGISTERED
  assert not any(name in note for note in notes.step_notes(step))
  monkeypatch.setenv("XLA_FLAGS", f"--{name}=true")
  assert any(
    f"do not include the gain of {name}" in n for n in notes.step_notes(step)
  )


def test_symmetric_and_peer_memory_modes_take_no_sm_within_a_process(
  h100s: Sequence[jax.Device], scheduled: Scheduled, step: step_lib.Step
) -> None:
  modes = {
    "xla_gpu_all_gather_mode": "COLLECTIVES_SYMMETRIC_MEMORY",
    "xla_gpu_collective_permute_mode": "COLLECTIVES_PEER_MEMORY",
  }
  module = scheduled(_sharded(h100s), **modes)
  marked = step_lib.of_module(module, H100)
  assert _costs(marked) == {
    "all-gather": ("copy engines", 0),
    "collective-permute": ("copy engines", 0),
  }
  text = " ".join(notes.route_notes(marked))
  assert "all-gather by copy engines (no SM)" in text
  assert "XLA_PYTHON_CLIENT_MEM_FRACTION" in text
  # Slower than NCCL's copies, because peers are signaled one after another.
  (gathered,) = (k for k in marked.routes if k.kind == "all-gather")
  flagged = step.asking(_asked(**{FLAG: True})).routes[gathered]
  assert marked.routes[gathered].cost.time_us > flagged.cost.time_us
  per_gpu = dataclasses.replace(H100, processes_per_node=8)
  assert not step_lib.of_module(module, per_gpu).routes


@pytest.mark.parametrize(
  ("version", "sms"),
  [((2, 27, 7), None), ((2, 28, 9), 132), ((2, 29, 3), 132), ((2, 30, 3), 0)],
)
def test_symmetric_gathers_and_their_sms_depend_on_nccls_version(
  step: step_lib.Step, version: tuple[int, ...], sms: int | None
) -> None:
  asked = dataclasses.replace(_asked(**{FLAG: True}), nccl_version=version)
  gathers = _costs(step.asking(asked)).get("all-gather")
  assert gathers == (None if sms is None else ("copy engines", sms))


def test_mostly_synchronous_collectives_use_kernels_not_copy_engines() -> None:
  module = gather_steps.module([MIB], plain_scatters=[8 * MIB, 9 * MIB])
  found = gather_steps.step(module).asking(_asked(**{FLAG: True}))
  assert {by for by, _ in _costs(found).values()} == {"symmetric kernel"}


def test_a_ranks_own_part_is_copied_at_a_share_of_the_link_rate() -> None:
  """NVIDIA/nccl#2177: 87 GiB/s within a GPU with links of 450 GB/s."""
  module = hlo_text.load(
    "p = bf16[67108864] parameter(0)\n"
    "s = (bf16[67108864], bf16[268435456]) all-gather-start(p), channel_id=1,"
    " replica_groups=[1,4]<=[4], use_global_device_ids=true, dimensions={0}\n"
    "k = bf16[67108864] negate(p)\n"
    "d = bf16[268435456] all-gather-done(s)\n"
    "ROOT r = (bf16[67108864], bf16[268435456]) tuple(k, d)",
    header="is_scheduled=true, num_partitions=4",
  )
  asked = _asked(**{FLAG: True})
  for name, times in (("1x4xh100", 1), ("1x4xgb200", 2)):
    found = step_lib.of_module(module, cluster_lib.parse(name), asked=asked)
    (route,) = found.routes.values()
    own_us = 128 * MIB / (times * 87 * 2**30 / 1e6)
    assert route.cost.time_us == pytest.approx(own_us, rel=0.02)


@pytest.mark.parametrize(
  ("version", "is_copied"), [((2, 30, 3), False), ((2, 30, 7), True)]
)
def test_copy_engines_gather_between_nodes_from_nccl_2_30_7_on(
  version: tuple[int, ...], is_copied: bool
) -> None:
  module = gather_steps.module([64 * MIB])
  asked = dataclasses.replace(_asked(**{FLAG: True}), nccl_version=version)
  cluster = cluster_lib.parse("2x4xh100")
  found = step_lib.of_module(module, cluster, asked=asked)
  expected = {"all-gather": ("copy engines", 0)} if is_copied else {}
  assert _costs(found) == expected


def test_symmetric_kernels_and_their_ctas_match_published_traces() -> None:
  """Tencent-Hunyuan/UniRL#467: AllGather_STMC of 2 CTAs on eight H20s."""
  found = symmetric.kernel(
    H100,
    "all-gather",
    8,
    32 * MIB,
    reduces_in_switch=True,
    num_arrays=1,
    max_ctas=None,
  )
  assert (found.name, found.num_ctas) == ("AllGather_STMC", 2)


@hypothesis.given(
  st.dictionaries(
    st.sampled_from(["AllGather", "allreduce", "ReduceScatter", "AllToAll"]),
    st.none() | st.integers(0, 2**40),
  )
)
def test_lists_of_kinds_are_parsed_as_xla_parses_them(
  wanted: dict[str, int | None],
) -> None:
  text = ",".join(
    kind if most is None else f"{kind}:{most}" for kind, most in wanted.items()
  )
  found = dict(collective_routes.symmetric({KINDS: text}))
  by_letters = {kind.lower(): most for kind, most in wanted.items()}
  by_letters.pop("alltoall", None)
  assert {kind.replace("-", "") for kind in found} == by_letters.keys()
  for kind, most in found.items():
    limit = by_letters[kind.replace("-", "")]
    assert most == limit if limit is not None else most > 2**60
  assert not collective_routes.asks_for_no_sm({KINDS: text})


def test_missing_names_the_flags_of_a_plan_that_a_process_lacks(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  options = {FLAG: True}
  assert collective_routes.missing(options) == f"--{FLAG}=true"
  monkeypatch.setenv("XLA_FLAGS", f"--{FLAG}")
  assert not collective_routes.missing(options)


def test_tune_plans_symmetric_buffers_only_if_nccl_supports_them(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  module = gather_steps.module([64 * MIB], kernels_us=3.0)
  target = fake_target.of(lambda _: module)
  tuning = tuner.tune(target)
  assert FLAG not in tuning.plan.xla.options
  (told,) = (n for n in notes.tuning_notes(tuning) if FLAG in n)
  assert "outside JAX's pool" in told
  (package,) = re.findall(r"pip install (\S+)==VERSION\.$", told)

  def version(name: str) -> str:
    if name != package:
      raise importlib.metadata.PackageNotFoundError(name)
    return "2.30.7"

  monkeypatch.setattr(importlib.metadata, "version", version)
  tuning = tuner.tune(target)
  assert tuning.plan.xla.options == {FLAG: True}
  assert not tuning.plan.nccl_settings
  (effect,) = (e for e in tuning.effects if e.knob == FLAG)
  assert effect.acted and "by copy engines (no SM)" in effect.evidence
  (arm,) = (a for a in tuning.search.arms if FLAG in a.config.options)
  assert any("NCCL 2.28" in note for note in arm.notes)


def test_symmetric_buffers_are_tried_before_recipes(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.setattr(collective_routes, "installed_nccl", lambda: (2, 30, 7))
  first, *recipes = arms.known(H100).arms
  assert first.config.options == {FLAG: True}
  assert not any(FLAG in arm.config.options for arm in recipes)
