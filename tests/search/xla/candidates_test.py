# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The best candidate gains, and makes nothing worse."""

from __future__ import annotations

from collections.abc import Mapping
import functools

import pytest

import gather_steps
from gather_steps import KIB
from lagom_xla.compile import config as config_lib
from lagom_xla.costs import scenario as scenario_lib
from lagom_xla.costs import uncertainty
from lagom_xla.costs.replay import timeline
from lagom_xla.passes.program import form
from lagom_xla.search.xla import arms
from lagom_xla.search.xla import candidates


def _candidate(
  default_us: float,
  tuned_us: float,
  tuned_if: Mapping[scenario_lib.Scenario, float] | None = None,
  *,
  goes_capped: bool = False,
  **options: int,
) -> candidates.Candidate:
  def lasting(step_time_us: float) -> timeline.Timeline:
    return timeline.Timeline(
      step_time_us=step_time_us,
      kernel_us=step_time_us,
      collective_us=0.0,
      exposed_us={},
      slowdown_us={},
    )

  step = gather_steps.step(gather_steps.module([64 * KIB]))
  tuned = lasting(tuned_us)
  return candidates.Candidate(
    config=config_lib.XlaConfig(options=options),
    step=step,
    runs=step,
    settings={},
    under_nccl_defaults=lasting(default_us),
    tuned=tuned,
    default_times=uncertainty.Times(mean_us=default_us, by_scenario={}),
    tuned_times=uncertainty.Times(
      mean_us=tuned_us, by_scenario=dict(tuned_if or {})
    ),
    num_trials=1,
    outcome=form.Outcome(),
    capped=tuned if goes_capped else None,
  )


@pytest.mark.parametrize(
  ("tuned_us", "if_slow_us", "is_kept"),
  [
    # A gain within the model's error is no reason to leave the default.
    (99.95, 99.95, False),
    (99.0, 99.0, True),
    # Some gain must remain where the model is wrong.
    (90.0, 99.0, True),
    (90.0, 101.0, False),
  ],
)
def test_a_candidate_is_kept_only_if_its_gain_is_sure(
  tuned_us: float, if_slow_us: float, is_kept: bool
):
  slow = scenario_lib.Scenario(part="contention", contention=2.0)
  default = _candidate(100.0, 100.0, {slow: 100.0})
  other = _candidate(100.0, tuned_us, {slow: if_slow_us}, threshold=1)
  found = candidates.Search(default=default, others=(other,))
  assert (found.best is other) == is_kept


@pytest.mark.parametrize(
  ("slow_links_us", "is_kept"), [(93.0, True), (97.0, False)]
)
def test_the_candidate_with_the_larger_sure_gain_is_kept(
  slow_links_us, is_kept
):
  # Which one is faster is unsure: they depend on different model errors.
  contention = scenario_lib.Scenario(part="contention", contention=2.0)
  links = scenario_lib.Scenario(part="links")
  default = _candidate(100.0, 100.0, {contention: 100.0, links: 100.0})
  first = _candidate(100.0, 90.0, {contention: 96.0, links: 90.0}, a=1)
  second = _candidate(
    100.0, 89.0, {contention: 89.0, links: slow_links_us}, b=1
  )
  found = candidates.Search(default=default, others=(first, second))
  assert found.best is (second if is_kept else first)
  assert (found.obstacle(second) == "not surely faster") == (not is_kept)


@pytest.mark.parametrize(
  ("tuned_us", "said"),
  [(80.0, "not faster"), (79.99, "not surely faster"), (81.0, "not faster")],
)
def test_obstacles_distinguish_not_faster_from_not_surely_faster(
  tuned_us: float, said: str
):
  default, kept = _candidate(100.0, 90.0), _candidate(100.0, 80.0, a=1)
  other = _candidate(100.0, tuned_us, b=1)
  found = candidates.Search(default=default, others=(kept, other))
  assert found.best is kept
  assert found.obstacle(other) == said
  assert found.obstacle(default) == "today"


def test_options_that_slow_the_step_under_nccl_defaults_are_rejected():
  default = _candidate(100.0, 90.0)
  hurts = _candidate(101.0, 50.0, threshold=1)
  helps = _candidate(100.0, 80.0, threshold=2)
  assert candidates.Search(default=default, others=(hurts,)).best is default
  both = candidates.Search(default=default, others=(hurts, helps))
  assert both.best is helps
  assert both.refused(helps, "It does not fit.").best is default


_capped = functools.partial(_candidate, goes_capped=True)


def test_options_applied_with_a_cap_may_slow_the_step_without_it():
  default = _capped(100.0, 90.0)
  hurts = _capped(101.0, 50.0, threshold=1)
  found = candidates.Search(default=default, others=(hurts,))
  assert found.best is hurts and not found.obstacle(hurts)


@pytest.mark.parametrize("arm_us", [60.0, 80.0])
def test_a_surer_candidate_with_a_cap_does_not_beat_a_faster_arm(arm_us):
  contention = scenario_lib.Scenario(part="contention", contention=2.0)
  default = _capped(100.0, 100.0, {contention: 100.0})
  arm = _capped(90.0, arm_us, {contention: 99.0}, arm=1)
  surer = _capped(95.0, 70.0, {contention: 80.0}, threshold=1)
  found = candidates.Search(
    default=default,
    others=(arm, surer),
    arms=(arms.Arm(name="recipe", config=arm.config),),
  )
  assert found.fastest_arm is arm
  assert found.best is (arm if arm_us < 70 else surer)
  assert found.refused(arm, "It does not fit.").fastest_arm is default
