# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's scheduler goes by our costs, and caches by the plan that they carry."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import scheduler_profile
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap
from lagom_xla.search.xla import feedback
import sgd_steps

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
  return step_lib.of_module(module, cluster_lib.parse(cluster))


def profile_of(module: hlo.Module) -> str:
  step = step_of(module)
  return feedback.profile(step, step.default)


def text(costs_us: Mapping[str, float]) -> str:
  """A profile in the protocol buffers' own syntax, one field a line."""
  return "".join(
    f'costs {{\n  name: "{name}"\n  cost_us: {cost_us}\n}}\n'
    for name, cost_us in costs_us.items()
  )


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
  costs_us = scheduler_profile.costs_us(feedback.profile(step, step.default))
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
  costs_us = scheduler_profile.costs_us(feedback.profile(step, step.default))
  lost_us = collections.defaultdict[str, float](float)
  for (name, _), us in step.timeline(step.default).slowdown_us.items():
    lost_us[name] += us
  assert max(lost_us.values()) > 0.1
  for kernel in step.analysis.kernels.values():
    alone_us = step.kernel_cost(kernel).time_us
    num_runs = max(kernel.executions, 1)  # Counted loops never ask theirs.
    expected_us = alone_us + lost_us[kernel.name] / num_runs
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
  default = scheduler_profile.costs_us(feedback.profile(step, step.default))
  configured = scheduler_profile.costs_us(feedback.profile(step, slower))
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
  scheduled(fsdp_step(), scheduler_profile=profile, **_NOTHING_MISSING)
  costs_us = scheduler_profile.costs_us(profile)
  costs_us.pop(next(name for name in costs_us if "gemm" in name))
  with pytest.raises(errors.CompileError, match="Found 1 missing"):
    scheduled(fsdp_step(), scheduler_profile=text(costs_us), **_NOTHING_MISSING)


def test_xla_finds_the_copies_that_it_starts_ahead_in_a_profile(
  scheduled: Schedule, h100s: Sequence[jax.Device]
) -> None:
  lowered = sgd_steps.lower_offloading(h100s, unroll=False)
  module = scheduled(lowered)
  step = step_of(module)
  costs_us = scheduler_profile.costs_us(feedback.profile(step, step.default))
  copies = list(step.analysis.copies.values())
  assert copies
  for copy in copies:
    alone_us = step.copy_cost(copy).time_us
    assert costs_us[copy.name] == pytest.approx(alone_us, abs=1e-3)
  profile = profile_of(module)
  scheduled(lowered, scheduler_profile=profile, **_NOTHING_MISSING)


def test_names_stay_from_one_profile_to_the_next(
  schedule: Schedule, module: hlo.Module
) -> None:
  following = schedule(scheduler_profile=profile_of(module))
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
    beside = num_beside(schedule(scheduler_profile=text(changed)))
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
    profile = feedback.profile(step, step.default)
    step = step_of(schedule(scheduler_profile=profile))
    times_us.append(step.timeline(step.default).step_time_us)
  assert min(times_us) < 0.995 * before_us


def test_any_profile_switches_the_scheduler_on_where_it_is_off(
  h100s: object,
) -> None:
  del h100s  # Only says whether there is anything to compile with.
  a100s = cluster_lib.parse("1x8xa100")
  devices = devices_lib.devices(a100s)
  mesh = jax.sharding.Mesh(devices, ("x",))
  rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
  w = jax.ShapeDtypeStruct((512, 512), jnp.bfloat16, sharding=rows)

  def step(v: jax.Array, w: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.tanh(jnp.tanh(x @ w) @ w.T) @ v

  lowered = jax.jit(step, out_shardings=rows).lower(w, w, w)

  def order_with(
    profile: str | None = None, **options: bool
  ) -> list[list[str]]:
    config = config_lib.XlaConfig(options=options, scheduler_profile=profile)
    step = lowered_lib.LoweredStep(lowered, a100s)
    return order(compiler.schedule(step, config))

  fed = order_with(scheduler_profile.encode({"no such instruction": 1.0}))
  assert fed == order_with(xla_gpu_enable_latency_hiding_scheduler=True)
  assert fed != order_with()


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
