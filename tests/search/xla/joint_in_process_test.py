# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What only the training process can tell XLA, tried after the options."""

from __future__ import annotations

from collections.abc import Callable

import jax
import pytest

import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import scheduler_profile
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import registry
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.schedule import orders as orders_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import feedback
from lagom_xla.search.xla import joint
from lagom_xla.tuner import tuner

_H100 = cluster_lib.parse("1x8xh100")


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

  return fake_target.FakeTarget(name="step", cluster=_H100, scheduled=scheduled)


def _search(*kernels_us: float) -> candidates.Search:
  """Of the target with these kernels."""
  return joint.search(_target(*kernels_us), seconds=0, in_process=True)


def _kernels(config: config_lib.XlaConfig) -> list[str]:
  """The kernels whose costs XLA's scheduler is fed."""
  costs_us = scheduler_profile.costs_us(config.scheduler_profile or "")
  return [name for name in costs_us if name.startswith("kernel")]


def _fed(found: candidates.Search) -> list[config_lib.XlaConfig]:
  configs = [candidate.config for candidate in found.others]
  return [c for c in configs if c.scheduler_profile is not None]


def _names(candidate: candidates.Candidate) -> list[str]:
  return [k.name for k in candidate.step.analysis.kernels.values()]


def test_xlas_scheduler_is_fed_the_costs_of_the_best_schedule():
  found = _search(500, 400, 300, 200)
  assert [_kernels(config) for config in _fed(found)] == [
    ["kernel0"],
    ["kernel1"],
    ["kernel2"],
  ]
  assert "kernel3" in _names(found.best)


def test_rounds_end_when_one_brings_nothing():
  found = _search(500, 400, 450)
  assert len(_fed(found)) == 2
  assert "kernel1" in _names(found.best)
  assert len(_fed(_search(500, 600))) == 1


def test_rounds_end_though_each_brings_something():
  found = _search(500, 400, 300, 200, 100)
  assert len(_fed(found)) == feedback.MAX_ROUNDS < 4


def test_a_launcher_gets_neither_groups_nor_profile():
  found = _search(500, 400, 450)
  assert found.best.config.scheduler_profile is not None
  prediction = tuner.plan_of(_target(500, 400, 450), found).prediction
  assert prediction.xla_us == prediction.default_us
  assert prediction.nccl_settings_us < prediction.default_us


def test_a_profile_that_jax_would_replace_is_refused(monkeypatch):
  def replaced() -> None:
    raise errors.ProfileError("jax_enable_pgle is on")

  monkeypatch.setattr(scheduler_profile, "check_reaches_xla", replaced)
  found = _search(500)
  refused = found.others[-1]
  assert isinstance(refused, candidates.Refused)
  assert refused.reason == "jax_enable_pgle is on"
  assert _kernels(refused.config) == ["kernel0"]
  assert found.best is found.default


def _formed(*, kernel_us: float, is_quick: bool = False) -> candidates.Search:
  """Of a step that hides its gather in the form "merged" once it is fed.

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

  target = fake_target.FakeTarget(
    name="step",
    cluster=_H100,
    scheduled=scheduled,
    rewritten=lambda form: form_lib.Outcome(
      actions=("Merged.",) if form.strands == "merged" else ()
    ),
  )
  return joint.search(target, seconds=0, in_process=True)


def _strands_fed(found: candidates.Search) -> list[str]:
  return [config.program.strands for config in _fed(found)]


def test_a_form_that_is_not_ahead_is_fed_its_costs_too():
  found = _formed(kernel_us=490)
  unfed = [c for c in found.scheduled if c.config.scheduler_profile is None]
  ahead = min(unfed, key=lambda c: c.tuned.step_time_us)
  assert ahead.config.program.is_as_written
  assert _strands_fed(found) == ["none", "merged", "merged"]
  assert found.best.config.program.strands == "merged"
  assert found.best.config.scheduler_profile is not None


def test_a_form_that_can_no_longer_win_is_not_fed():
  found = _formed(kernel_us=900)
  assert _strands_fed(found) == ["none"]


def test_the_best_is_fed_once_if_it_is_a_form_itself():
  found = _formed(kernel_us=300, is_quick=True)
  assert set(_strands_fed(found)) == {"merged"}
  assert len(_fed(found)) <= feedback.MAX_ROUNDS


def _two_strands() -> hlo.Module:
  """A loop in whose body each strand waits for its gather and its kernel."""
  strands = "\n".join(
    f"""
    {name} = f32[262144] get-tuple-element(t), index={index}
    gather.{name} = (f32[262144], f32[2097152]) all-gather-start({name}),
      {hlo_text.GATHER}
    done.{name} = f32[2097152] all-gather-done(gather.{name})
    kernel.{name} = f32[262144] custom-call(done.{name}),
      custom_call_target="Kernel",
      backend_config={{"reification_cost":[{{"name":"sol","exec_time_us":300}}]}}
    """
    for index, name in enumerate("ab")
  )
  carried = "(f32[262144], f32[262144])"
  return hlo_text.load(
    f"""
    p = {carried} parameter(0)
    ROOT loop = {carried} while(p), body=body, condition=condition,
      {hlo_text.trips(10)}
    """,
    computations=f"""
    body {{
      t = {carried} parameter(0)
      {strands}
      ROOT r = {carried} tuple(kernel.a, kernel.b) }}
    condition {{
      t = {carried} parameter(0)
      ROOT c = pred[] constant(true) }}
    """,
  )


def test_strands_are_aligned_last_of_all():
  module = _two_strands()

  def scheduled(config: config_lib.XlaConfig) -> hlo.Module:
    return orders_lib.apply(module, config.orders)

  target = fake_target.FakeTarget(
    name="step", cluster=_H100, scheduled=scheduled
  )
  told: list[str] = []
  found = joint.search(target, seconds=0, in_process=True, progress=told.append)
  assert told[-1] == "aligned strands"
  order = found.best.config.orders["body"]
  # One gather is beside the other strand's kernel now.
  first, second = sorted("ab", key=lambda name: order.index(f"gather.{name}"))
  assert order.index(f"gather.{second}") < order.index(f"kernel.{first}")
  assert order.index(f"kernel.{first}") < order.index(f"done.{second}")
  exposed = found.default.under_nccl_defaults.total_exposed_us
  after = found.best.under_nccl_defaults.total_exposed_us
  assert after == pytest.approx(exposed / 2)


# A real step.


@pytest.fixture(scope="module")
def real(
  fsdp_step: Callable[..., jax.stages.Lowered],
) -> candidates.Search:
  target = target_lib.of_step(fsdp_step(unroll=False), _H100, name="step")
  return joint.search(target, seconds=0, in_process=True)


def test_a_real_step_gets_no_slower_with_a_tuner_or_without(real):
  best, default = real.best, real.default
  assert best.tuned.step_time_us <= default.tuned.step_time_us
  assert (
    best.under_nccl_defaults.step_time_us
    <= default.under_nccl_defaults.step_time_us
  )


def test_xla_follows_the_costs_that_a_real_step_is_fed(real):
  (first, *_) = [
    c for c in real.others if c.config.scheduler_profile is not None
  ]
  assert isinstance(first, candidates.Candidate)
  assert (
    first.step.timeline(first.step.default) != real.default.under_nccl_defaults
  )


def test_groups_are_refused_where_donated_inputs_would_be_forgotten(real):
  assert real.default.step.analysis.module.proto.input_output_alias.entries
  groups, *others = [
    c for c in real.others if c.config.combine_groups is not None
  ]
  if registry.keeps_donation():
    assert isinstance(groups, candidates.Candidate)
  else:
    assert isinstance(groups, candidates.Refused)
    assert "donates inputs" in groups.reason
    assert not others
