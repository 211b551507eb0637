# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's scheduler gets our costs and uses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import scheduler_profile
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap
from lagom_xla.passes.program import form as form_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import feedback
from lagom_xla.search.xla import joint
from lagom_xla.tuner import tuner
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


def step_of(module: hlo.Module) -> step_lib.Step:
  return step_lib.of_module(module, cluster_lib.parse("1x8xh100"))


def profile_of(module: hlo.Module) -> str:
  step = step_of(module)
  return feedback.profile(step, step.default)


def text(costs_us: Mapping[str, float]) -> str:
  """A profile in protobuf's text format, with one field per line."""
  return "".join(
    f'costs {{\n  name: "{name}"\n  cost_us: {cost_us}\n}}\n'
    for name, cost_us in costs_us.items()
  )


def order(module: hlo.Module) -> list[list[str]]:
  return [
    [i.name for i in computation.instructions]
    for computation in overlap.analyze(module).sequences
  ]


@pytest.fixture(scope="module")
def schedule(scheduled: Schedule, fsdp_step: LowerStep) -> Schedule:
  """Schedules the unrolled train step with every collective on its own."""

  def schedule_(**options: Any) -> hlo.Module:
    return scheduled(fsdp_step(unroll=True), **_NO_COMBINING, **options)

  return schedule_


@pytest.fixture(scope="module")
def module(schedule: Schedule) -> hlo.Module:
  return schedule()


def test_profiles_of_equal_modules_are_byte_identical(
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


def test_the_cost_of_a_collective_follows_its_nccl_setting(
  fsdp_scan: hlo.Module,
) -> None:
  step = step_of(fsdp_scan)
  fewest = {
    key: dataclasses.replace(setting, num_channels=1)
    for key, setting in step.default.items()
  }
  default, configured = (
    scheduler_profile.costs_us(feedback.profile(step, configuration))
    for configuration in (step.default, fewest)
  )
  changed = [
    name
    for name, key in step.key_of.items()
    if fewest[key] != step.default[key]
  ]
  assert changed
  assert all(default[name] != configured[name] for name in changed)


def test_xla_finds_all_costs_that_it_needs_in_a_profile(
  scheduled: Schedule, fsdp_step: LowerStep, fsdp_scan: hlo.Module
) -> None:
  # The profile has names of the first compile, so names must be stable.
  profile = profile_of(fsdp_scan)
  scheduled(fsdp_step(), scheduler_profile=profile, **_NOTHING_MISSING)
  costs_us = scheduler_profile.costs_us(profile)
  costs_us.pop(next(name for name in costs_us if "gemm" in name))
  with pytest.raises(errors.CompileError, match="Found 1 missing"):
    scheduled(fsdp_step(), scheduler_profile=text(costs_us), **_NOTHING_MISSING)


def test_xla_finds_its_asynchronous_copies_in_a_profile(
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


def test_instruction_names_stay_the_same_across_profiles(
  schedule: Schedule, module: hlo.Module
) -> None:
  following = schedule(scheduler_profile=profile_of(module))
  assert order(following) != order(module)
  first = scheduler_profile.costs_us(profile_of(module))
  assert (
    scheduler_profile.costs_us(profile_of(following)).keys() == first.keys()
  )


@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter"])
def test_a_costlier_collective_is_overlapped_with_more_kernels(
  schedule: Schedule, module: hlo.Module, kind: str
) -> None:
  costs_us = scheduler_profile.costs_us(profile_of(module))

  def most_kernels(cost_us: float) -> int:
    changed = {
      name: cost_us if name.startswith(kind) else other_us
      for name, other_us in costs_us.items()
    }
    analysis = overlap.analyze(schedule(scheduler_profile=text(changed)))
    beside = [
      len(analysis.kernels_beside[c.start_id])
      for c in analysis.collectives
      if kind in c.name
    ]
    # Ignores the first or last one, which overlaps all remaining kernels.
    return sorted(beside)[-2]

  assert most_kernels(0.1) < most_kernels(30.0)


def test_our_costs_shorten_a_step_that_xla_misestimates(
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


def test_any_profile_turns_on_a_scheduler_that_is_off_by_default(
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


# Rounds of feedback, repeated while they gain.


def _target(*kernels_us: float) -> target_lib.Target:
  """A step whose kernel takes these times, first and after each feedback.

  The kernel of the schedule that the costs of schedule i lead to is called
  kernel{i + 1}.
  """

  def scheduled(config: config_lib.XlaConfig) -> hlo.Module:
    position = 0
    if config.scheduler_profile is not None:
      (fed,) = _kernels(config)
      position = int(fed.removeprefix("kernel")) + 1
    start, done = hlo_text.all_gather("gather", 8 * 2**20)
    kernel = hlo_text.kernel(f"kernel{position}", kernels_us[position])
    return hlo_text.load(f"""
      p = f32[256,256] parameter(0)
      {start}
      {kernel}
      {done}
      ROOT result = (f32[256,256]) tuple(p)
    """)

  return fake_target.of(scheduled)


def _search(*kernels_us: float) -> candidates.Search:
  """The feedback for the target with these kernels."""
  return joint.search(_target(*kernels_us), seconds=0, in_process=True)


def _kernels(config: config_lib.XlaConfig) -> list[str]:
  """The kernels whose costs XLA's scheduler gets."""
  costs_us = scheduler_profile.costs_us(config.scheduler_profile or "")
  return [name for name in costs_us if name.startswith("kernel")]


def _fed(found: candidates.Search) -> list[config_lib.XlaConfig]:
  configs = [candidate.config for candidate in found.others]
  return [c for c in configs if c.scheduler_profile is not None]


@pytest.mark.parametrize(
  ("kernels_us", "num_rounds", "best"),
  [
    # Rounds end when one gains nothing,
    ((500, 400, 450), 2, "kernel1"),
    ((500, 600), 1, "kernel0"),
    # or at the limit, even if each gains.
    ((500, 400, 300, 200, 100), feedback.MAX_ROUNDS, "kernel3"),
  ],
)
def test_xlas_scheduler_is_fed_the_costs_of_the_best_schedule(
  kernels_us: Sequence[float], num_rounds: int, best: str
):
  found = _search(*kernels_us)
  assert [_kernels(config) for config in _fed(found)] == [
    [f"kernel{i}"] for i in range(num_rounds)
  ]
  (kernel,) = found.best.step.analysis.kernels.values()
  assert kernel.name == best


def test_predictions_for_launchers_exclude_groups_and_profiles():
  found = _search(500, 400, 450)
  assert found.best.config.scheduler_profile is not None
  prediction = tuner.plan_of(_target(500, 400, 450), found).prediction
  assert prediction.xla_us == prediction.default_us
  assert prediction.nccl_settings_us < prediction.default_us


@pytest.mark.parametrize(
  "name", ["jax_enable_pgle", "jax_compilation_cache_expect_pgle"]
)
def test_a_profile_that_jax_would_replace_is_refused(name: str) -> None:
  scheduler_profile.check_reaches_xla()
  before = getattr(jax.config, name)
  jax.config.update(name, True)
  try:
    found = _search(500)
  finally:
    jax.config.update(name, before)
  refused = found.others[-1]
  assert isinstance(refused, candidates.Refused)
  assert f"{name} is on" in refused.reason
  assert _kernels(refused.config) == ["kernel0"]
  assert found.best is found.default


def _formed(*, kernel_us: float, is_quick: bool) -> candidates.Search:
  """Searches a step that hides its gather in form "merged" once it is fed.

  Args:
    kernel_us: of the form's kernel; 500 as written.
    is_quick: whether the gather is hidden before that, too.
  """

  def scheduled(config: config_lib.XlaConfig) -> hlo.Module:
    is_written = config.program.is_as_written
    is_fed = config.scheduler_profile is not None
    start, done = hlo_text.all_gather("gather", 8 * 2**20)
    kernel = hlo_text.kernel("kernel", 500.0 if is_written else kernel_us)
    if is_written:
      lines = [start, done, kernel]
    elif is_fed or is_quick:
      lines = [start, kernel, done]
    else:  # One more that is exposed.
      second = hlo_text.all_gather("second", 8 * 2**20)
      lines = [start, done, kernel, *second]
    text = ["p = f32[256,256] parameter(0)", *lines, "ROOT end = () tuple()"]
    return hlo_text.load("\n".join(text))

  target = fake_target.of(
    scheduled,
    rewritten=lambda form: form_lib.Outcome(
      actions=("Merged.",) if form.strands == "merged" else ()
    ),
  )
  return joint.search(target, seconds=0, in_process=True)


@pytest.mark.parametrize(
  ("kernel_us", "is_quick", "ahead", "fed"),
  [
    # A form that is not ahead is fed its costs, too.
    (490, False, "none", ["none", "merged", "merged"]),
    # A form that can no longer win is not.
    (900, False, "none", ["none"]),
    # The best is fed once if it is a form itself.
    (300, True, "merged", ["merged"]),
  ],
)
def test_the_best_and_the_quickest_form_are_fed_their_costs(
  kernel_us: float, is_quick: bool, ahead: str, fed: list[str]
):
  found = _formed(kernel_us=kernel_us, is_quick=is_quick)
  unfed = [c for c in found.scheduled if c.config.scheduler_profile is None]
  fastest = min(unfed, key=candidates.tuned_us)
  assert fastest.config.program.strands == ahead
  assert [config.program.strands for config in _fed(found)] == fed
  assert found.best.config.program.strands == fed[-1]
