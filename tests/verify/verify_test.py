# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A plan is verified knob by knob, or refused if it is for another step."""

from __future__ import annotations

import dataclasses

import pytest

import commands
import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.apply import checked
from lagom_xla.cli import options as cli_options
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import scheduler_profile
from lagom_xla.compile import target as target_lib
from lagom_xla.passes.combine import combinable
from lagom_xla.report import notes
from lagom_xla.report import settings
from lagom_xla.search.xla import feedback
from lagom_xla.search.xla import knobs
from lagom_xla.tuner import tuner
from lagom_xla.verify import effects as effects_lib
from lagom_xla.verify import verification as verification_lib
from searched_plan import H100
from searched_plan import Tuned
from searched_plan import plan_of
from searched_plan import verify_with

_GATHER = knobs.OPTIONS["all-gather"]
_LIMIT = "xla_gpu_experimental_parallel_collective_overlap_limit"


@pytest.fixture(scope="module")
def tuned(searched_unrolled) -> Tuned:
  return searched_unrolled


def _effects(
  verification: verification_lib.Verification,
) -> dict[str, effects_lib.Effect]:
  return {effect.knob: effect for effect in verification.effects}


def test_every_knob_of_a_searched_plan_has_an_effect(tuned):
  verification = verification_lib.verify(tuned.plan, tuned.target)
  plan = tuned.plan
  assert plan.xla.options and plan.nccl_settings
  assert len(verification.effects) == (
    len(plan.xla.options) + len(plan.nccl_settings) + len(plan.nccl_env)
  )
  assert verification.all_acted
  assert not any(e.evidence.startswith("no") for e in verification.effects)
  prediction = plan.prediction
  assert verification.default_us == pytest.approx(prediction.default_us)
  assert verification.planned_us == pytest.approx(prediction.nccl_settings_us)


def test_a_plan_that_has_become_slower_is_reported_with_a_range(monkeypatch):
  # A step that has become faster, so that the plan slows it down.
  target = fake_target.of(
    lambda config: hlo_text.exposed_gather(90 if config.options else 50)
  )
  plan = tuner.tune(target).plan
  slower = dataclasses.replace(
    plan, xla=config_lib.XlaConfig(options={"xla_a": 1})
  )
  verified = verification_lib.verify(slower, target)
  assert verified.loses and verified.all_acted
  gain_us = verified.default_us - verified.planned_us
  assert verified.gain_us.low_us <= gain_us <= verified.gain_us.high_us < 0
  monkeypatch.setattr(cli_options, "load_target", lambda *_: target)
  for known, status, said in ((plan, 0, "sets nothing"), (slower, 1, "loses")):
    monkeypatch.setattr(checked, "load", lambda _, known=known: known)
    ran = commands.run("verify", "plan", "step", commands.CLUSTER)
    assert ran.status == status and said in ran.out


def test_both_steps_are_compared_with_the_plans_matmul_kernels():
  triton = "xla_gpu_enable_triton_gemm"

  def takes_us(config: config_lib.XlaConfig) -> float:
    return 90 - 30 * (triton in config.options) - ("xla_a" in config.options)

  target = fake_target.of(
    lambda config: hlo_text.exposed_gather(takes_us(config))
  )
  plan = dataclasses.replace(
    tuner.tune(target).plan,
    xla=config_lib.XlaConfig(options={triton: False, "xla_a": 1}),
  )
  verified = verification_lib.verify(plan, target)
  assert verified.default_us - verified.planned_us == pytest.approx(1, abs=0.1)
  (note,) = notes.plan_notes(plan)
  assert "takes the faster one" in note and triton in note


def test_a_plan_that_changes_nothing_has_no_effects(tuned):
  verification = verify_with(tuned, told={}, nccl_env={}, nccl_settings=())
  assert verification.effects == ()
  assert verification.all_acted
  assert verification.planned_us == verification.default_us


def test_an_option_is_judged_by_leaving_it_out_of_the_plan(tuned):
  # With XLA's own combining the limit moves two of three collectives, or none
  # with JAX 0.12, where most are sync. Without combining it moves others.
  options = {_LIMIT: 2, _GATHER: 0}
  evidence = {
    name: _effects(
      verify_with(tuned, told={"options": chosen}, nccl_settings=())
    )[_LIMIT].evidence
    for name, chosen in (("both", options), ("alone", {_LIMIT: 2}))
  }
  assert evidence["alone"].startswith(("2 of 3 collectives moved", "no effect"))
  assert " of 11 collectives moved" in evidence["both"]


def test_a_scheduler_that_fixed_costs_would_disable_is_kept_as_today(
  tuned,
):
  options = {knobs.ESTIMATES: False, knobs.SCHEDULER: True}
  told = verify_with(tuned, told={"options": options}, nccl_settings=())
  effect = _effects(told)[knobs.SCHEDULER]
  assert effect.acted and effect.is_as_today and effect.gain_us == 0
  reason = f"needed, as {knobs.ESTIMATES}=false switches it off; "
  assert effect.evidence.startswith(reason)
  shown = settings.of_effect(effect)
  assert shown.does.startswith(", as today: ")
  assert reason.rstrip("; ") in shown.does
  assert not _effects(told)[knobs.ESTIMATES].is_as_today


def _of_kind(target: target_lib.Target, kind: str) -> list[str]:
  found = combinable.find(target.identity())
  return [c.label for c in found.values() if c.kind == kind]


def test_a_threshold_with_combine_groups_is_judged_without_the_groups(tuned):
  # Groups override the threshold; it is for processes that cannot set groups.
  gathers = _of_kind(tuned.target, "all-gather")
  step = tuner.inspect(tuned.target)
  profile = feedback.profile(step, step.default)
  verification = verify_with(
    tuned,
    told={
      "options": {_GATHER: 0, _LIMIT: 2},
      "combine_groups": (tuple(gathers[:2]), tuple(gathers[2:4])),
      "scheduler_profile": profile,
    },
    nccl_settings=(),
  )
  found = _effects(verification)
  groups = found["combine groups"]
  assert groups.acted and groups.value == "2 groups"
  num_costs = len(scheduler_profile.costs_us(profile))
  assert found["scheduler profile"].value == f"{num_costs} costs"
  threshold = found[_GATHER]
  assert threshold.acted
  assert threshold.evidence.startswith("without the combine groups: 1 all-gath")
  assert not found[_LIMIT].evidence.startswith("without the combine groups")


def test_a_scheduled_module_accepts_settings_but_no_options(fsdp_unrolled):
  target = target_lib.of_module(fsdp_unrolled, H100, name="scheduled")
  plan = plan_of(target)
  assert plan.nccl_settings and not plan.xla.options
  assert verification_lib.verify(plan, target).all_acted
  optimistic = dataclasses.replace(
    plan, xla=config_lib.XlaConfig(options={_GATHER: 0})
  )
  verification = verification_lib.verify(optimistic, target)
  assert [e.knob for e in verification.effects if not e.acted] == [_GATHER]


@pytest.mark.parametrize(
  ("cluster", "difference"),
  [
    (
      cluster_lib.parse("1x8xa100_80"),
      "gpu.name is a100_80 there and h100 here",
    ),
    (
      dataclasses.replace(
        H100, node=dataclasses.replace(H100.node, nic_gbps=1.0)
      ),
      "node.nic_gbps is 1.0 there",
    ),
  ],
)
def test_a_plan_for_another_cluster_is_refused_with_a_difference(
  tuned, cluster, difference
):
  with pytest.raises(errors.PlanError) as refused:
    verify_with(tuned, cluster=cluster)
  assert f"made for {cluster.name}, not for 1x8xh100" in str(refused.value)
  assert difference in str(refused.value)


def test_a_plan_for_the_same_cluster_under_another_name_is_accepted(tuned):
  renamed = dataclasses.replace(H100, name="our cluster")
  assert verify_with(tuned, cluster=renamed).all_acted


def test_a_plan_for_another_module_is_refused(tuned, fsdp_step):
  other = target_lib.of_step(fsdp_step(), H100, name="scan")
  for use in (verification_lib.verify, checked.compile_with):
    with pytest.raises(errors.PlanError, match="shardings changed") as refused:
      use(tuned.plan, other)
    assert tuned.plan.module_fingerprint in str(refused.value)


def test_combine_groups_of_another_step_are_refused(tuned):
  with pytest.raises(errors.PlanError, match=r"for another step.*absent"):
    verify_with(tuned, told={"combine_groups": (("absent", "missing"),)})
