# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's scheduler goes by our costs, and caches by the plan that they carry."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping
import pathlib
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache
import jax.numpy as jnp
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import compiler as compile_lib
from lagom_xla.compile import scheduler_profile
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap
from lagom_xla.passes import registry

LowerStep = Callable[..., jax.stages.Lowered]
Schedule = Callable[..., hlo.Module]

_NO_COMBINING = {
  f"xla_gpu_{kind}_combine_threshold_bytes": 0
  for kind in ("all_gather", "all_reduce", "reduce_scatter")
}
_NOTHING_MISSING = {
  "xla_gpu_pgle_accuracy_checker": "PGLE_STRICTNESS_LEVEL_ERROR"
}


def step_of(module: hlo.Module, cluster: str = "1x8xh100") -> step_lib.Step:
  return step_lib.Step(overlap.analyze(module), cluster_lib.parse(cluster))


def profile_of(module: hlo.Module) -> bytes:
  step = step_of(module)
  return scheduler_profile.profile(step, step.default)


def text(costs_us: Mapping[str, float]) -> bytes:
  """A profile in the protocol buffers' own syntax, one field a line."""
  return "".join(
    f'costs {{\n  name: "{name}"\n  cost_us: {cost_us}\n}}\n'
    for name, cost_us in costs_us.items()
  ).encode()


def order(module: hlo.Module) -> list[list[str]]:
  return [
    [i.name for i in computation.instructions]
    for computation in overlap.analyze(module).sequences
  ]


def num_beside(module: hlo.Module) -> dict[str, int]:
  """Kernels beside each collective."""
  analysis = overlap.analyze(module)
  return {
    c.name: len(analysis.kernels_beside[c.start_id])
    for c in analysis.collectives
  }


@pytest.fixture(scope="module")
def schedule(scheduled: Schedule, fsdp_step: LowerStep) -> Schedule:
  """Schedules the unrolled train step with every collective on its own."""

  def schedule_(**options: Any) -> hlo.Module:
    return scheduled(fsdp_step(unroll=True), **_NO_COMBINING, **options)

  return schedule_


@pytest.fixture(scope="module")
def module(schedule: Schedule) -> hlo.Module:
  return schedule()


def test_a_profile_is_the_same_bytes_every_time(
  train_step_module: hlo.Module,
) -> None:
  again = hlo.load(train_step_module.proto.SerializeToString())
  assert profile_of(train_step_module) == profile_of(again)


def test_a_profile_adds_up_to_the_replayed_step(
  train_step_module: hlo.Module,
) -> None:
  step = step_of(train_step_module)
  timeline = step.timeline(step.default)
  costs_us = scheduler_profile.costs_us(
    scheduler_profile.profile(step, step.default)
  )
  kernels = step.analysis.kernels.values()
  total_us = sum(costs_us[k.name] * k.executions for k in kernels)
  assert total_us == pytest.approx(
    timeline.kernel_us + timeline.total_slowdown_us, rel=1e-3
  )
  collectives = step.analysis.collectives
  total_us = sum(costs_us[c.name] * c.executions for c in collectives)
  assert total_us == pytest.approx(
    timeline.collective_us + timeline.total_delay_us, rel=1e-3
  )


def test_a_kernel_costs_more_beside_a_collective(tp_scan: hlo.Module) -> None:
  step = step_of(tp_scan)
  costs_us = scheduler_profile.costs_us(
    scheduler_profile.profile(step, step.default)
  )
  lost_us = collections.defaultdict[str, float](float)
  for (name, _), us in step.timeline(step.default).slowdown_us.items():
    lost_us[name] += us
  assert max(lost_us.values()) > 0.1
  for kernel in step.analysis.kernels.values():
    alone_us = step.kernel_cost(kernel).time_us
    expected_us = alone_us + lost_us[kernel.name] / kernel.executions
    assert costs_us[kernel.name] == pytest.approx(expected_us, abs=1e-3)


def test_a_collective_costs_what_it_is_configured_to(
  fsdp_scan: hlo.Module,
) -> None:
  step = step_of(fsdp_scan)
  slower = {
    key: min(
      (
        setting
        for other, setting in step.default.items()
        if other.kind == key.kind
      ),
      key=lambda setting: setting.num_channels,
    )
    for key in step.keys
  }
  changed = [c for c in step.analysis.collectives if _differs(step, c, slower)]
  assert changed
  default = scheduler_profile.costs_us(
    scheduler_profile.profile(step, step.default)
  )
  configured = scheduler_profile.costs_us(
    scheduler_profile.profile(step, slower)
  )
  assert all(default[c.name] != configured[c.name] for c in changed)


def _differs(
  step: step_lib.Step, collective: Any, configuration: step_lib.Configuration
) -> bool:
  key = step.key_of[collective.name]
  return configuration[key] != step.default[key]


def test_xla_finds_all_that_it_wants_in_a_profile(
  scheduled: Schedule, fsdp_step: LowerStep, fsdp_scan: hlo.Module
) -> None:
  # Under the names of the first compile, so those are still the same.
  profile = profile_of(fsdp_scan)
  scheduled(fsdp_step(), fdo_profile=profile, **_NOTHING_MISSING)
  costs_us = scheduler_profile.costs_us(profile)
  costs_us.pop(next(name for name in costs_us if "gemm" in name))
  with pytest.raises(errors.CompileError, match="Found 1 missing"):
    scheduled(fsdp_step(), fdo_profile=text(costs_us), **_NOTHING_MISSING)


def test_names_stay_from_one_profile_to_the_next(
  schedule: Schedule, module: hlo.Module
) -> None:
  following = schedule(fdo_profile=profile_of(module))
  assert order(following) != order(module)
  first = scheduler_profile.costs_us(profile_of(module))
  assert (
    scheduler_profile.costs_us(profile_of(following)).keys() == first.keys()
  )


@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter"])
def test_the_schedule_gives_a_collective_the_kernels_that_its_cost_asks_for(
  schedule: Schedule, module: hlo.Module, kind: str
) -> None:
  costs_us = scheduler_profile.costs_us(profile_of(module))

  def most_kernels(cost_us: float) -> int:
    changed = {
      name: cost_us if name.startswith(kind) else other_us
      for name, other_us in costs_us.items()
    }
    beside = num_beside(schedule(fdo_profile=text(changed)))
    # All but the first or the last, beside which lies whatever is left.
    return sorted(n for name, n in beside.items() if kind in name)[-2]

  assert most_kernels(0.1) < most_kernels(30.0)


def test_our_costs_shorten_the_step_where_xla_misjudges_it(
  schedule: Schedule, module: hlo.Module
) -> None:
  step = step_of(module)
  before_us = step.timeline(step.default).step_time_us
  times_us = []
  for _ in range(2):
    profile = scheduler_profile.profile(step, step.default)
    step = step_of(schedule(fdo_profile=profile))
    times_us.append(step.timeline(step.default).step_time_us)
  assert min(times_us) < 0.98 * before_us


def test_a_plans_hash_is_read_back_and_leaves_costs_alone(
  fsdp_scan: hlo.Module,
) -> None:
  profile = profile_of(fsdp_scan)
  assert scheduler_profile.plan_hash(profile) is None
  marked = scheduler_profile.with_plan_hash(profile, "0f3a")
  assert scheduler_profile.plan_hash(marked) == "0f3a"
  assert scheduler_profile.costs_us(marked) == scheduler_profile.costs_us(
    profile
  )
  assert marked != scheduler_profile.with_plan_hash(profile, "0f3b")


@pytest.mark.parametrize("plan_hash", ["", "a b", "a\n", 'a"', "$"])
def test_a_hash_that_could_break_the_profile_is_refused(plan_hash: str) -> None:
  with pytest.raises(errors.ProfileError, match="must be letters, digits"):
    scheduler_profile.with_plan_hash(b"", plan_hash)


def test_a_plans_hash_changes_no_schedule(
  schedule: Schedule, module: hlo.Module
) -> None:
  profile = profile_of(module)
  following = schedule(fdo_profile=profile)
  for name in ("0f3a", "d" * 64):
    marked = scheduler_profile.with_plan_hash(profile, name)
    assert order(schedule(fdo_profile=marked)) == order(following)
  alone = scheduler_profile.with_plan_hash(b"", "0f3a")
  silent = schedule(fdo_profile=alone, **scheduler_profile.SILENT)
  assert order(silent) == order(module)


def test_any_profile_switches_the_scheduler_on_where_it_is_off(
  h100s: object,
) -> None:
  del h100s  # Only says whether there is anything to compile with.
  a100s = cluster_lib.parse("1x8xa100")
  devices = compile_lib.devices(a100s)
  mesh = jax.sharding.Mesh(devices, ("x",))
  rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
  w = jax.ShapeDtypeStruct((512, 512), jnp.bfloat16, sharding=rows)

  def step(v: jax.Array, w: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.tanh(jnp.tanh(x @ w) @ w.T) @ v

  lowered = jax.jit(step, out_shardings=rows).lower(w, w, w)

  def order_with(**options: Any) -> list[list[str]]:
    compilation = compile_lib.compile_step(
      lowered, a100s, options=options, schedule_only=True
    )
    return order(compilation.module)

  marked = order_with(fdo_profile=scheduler_profile.with_plan_hash(b"", "0f3a"))
  assert marked == order_with(xla_gpu_enable_latency_hiding_scheduler=True)
  assert marked != order_with()


@pytest.fixture
def persistent_cache(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
  """JAX's persistent compilation cache, which takes everything."""
  settings = {
    "jax_compilation_cache_dir": str(tmp_path),
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
  }
  before = {name: getattr(jax.config, name) for name in settings}
  for name, value in settings.items():
    jax.config.update(name, value)
  compilation_cache.reset_cache()
  yield tmp_path
  for name, value in before.items():
    jax.config.update(name, value)
  compilation_cache.reset_cache()


class _Plan:
  """A plan with a pass, which leaves a note in every module."""

  def __init__(self, note: str):
    self.note = note
    self.num_compiles = 0

  def compile(self, options: Any) -> str:
    """Compiles on the CPU; returns the note in what comes out."""
    lowered = jax.jit(lambda x: jnp.tanh(x) @ x).lower(jnp.ones((8, 8)))
    with registry.transformation(
      self._annotate, stage=registry.Stage.POST_SCHEDULER, platform="cpu"
    ):
      module = hlo.load(lowered.compile(compiler_options=options))
    (note,) = {
      i.frontend_attributes.map["plan"] for i in module.entry.instructions
    } - {""}
    return note

  def _annotate(self, serialized: bytes) -> bytes:
    self.num_compiles += 1
    proto = hlo.load(serialized).proto
    for computation in proto.computations:
      for instruction in computation.instructions:
        instruction.frontend_attributes.map["plan"] = self.note
    return proto.SerializeToString()


@pytest.mark.usefixtures("persistent_cache")
def test_two_plans_never_share_a_cached_executable() -> None:
  plans = [_Plan("a"), _Plan("b")]
  for _ in range(2):
    for plan in plans:
      profile = scheduler_profile.with_plan_hash(b"", plan.note)
      assert plan.compile({"fdo_profile": profile}) == plan.note
  # The second time they came out of the cache.
  assert [plan.num_compiles for plan in plans] == [1, 1]


@pytest.mark.usefixtures("persistent_cache")
def test_without_a_hash_a_plan_would_get_anothers_executable() -> None:
  assert [_Plan(note).compile({}) for note in ("a", "b")] == ["a", "a"]


@pytest.mark.parametrize(
  "name", ["jax_enable_pgle", "jax_compilation_cache_expect_pgle"]
)
def test_jaxs_own_profiles_are_said_to_be_in_the_way(name: str) -> None:
  scheduler_profile.check_reaches_xla()
  before = getattr(jax.config, name)
  jax.config.update(name, True)
  try:
    with pytest.raises(errors.ProfileError, match=f"{name} is on"):
      scheduler_profile.check_reaches_xla()
  finally:
    jax.config.update(name, before)
