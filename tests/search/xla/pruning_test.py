# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A plan has only options that affect its step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import jax
import pytest

import arm_steps
import compiles
import fake_target
import hlo_text
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import pruning
from lagom_xla.tuner import tuner

_DOUBLED = "xla_gpu_enable_while_loop_double_buffering"
_BY_DIM = "xla_gpu_enable_all_gather_combine_by_dim"
_GATHERED = "xla_gpu_all_gather_combine_threshold_bytes"
_COMMANDS = "xla_gpu_enable_command_buffer"
_SCHEDULER = "xla_gpu_enable_latency_hiding_scheduler"
_ESTIMATES = "xla_gpu_enable_analytical_sol_latency_estimator"


def _pruned(
  options: Mapping[str, bool | int | str], target: target_lib.Target
) -> set[str]:
  kept = evaluation.evaluate_or_raise(
    config_lib.XlaConfig(options=options), target=target
  )
  return set(pruning.pruned(kept, evaluation.Steps(target)).options)


def _taking(
  takes_us: Callable[[config_lib.XlaConfig], float],
) -> fake_target.FakeTarget:
  return fake_target.of(lambda c: hlo_text.exposed_gather(takes_us(c)))


@settings(deadline=None, max_examples=20)
@given(
  options=st.sets(st.sampled_from("abcdef")),
  acting=st.sets(st.sampled_from("abcdef")),
)
def test_options_with_an_effect_stay_and_others_are_removed(
  options: set[str], acting: set[str]
) -> None:
  def takes_us(config: config_lib.XlaConfig) -> float:
    acts = acting.intersection(config.options)
    return 100 - sum(2**i for i, n in enumerate("abcdef") if n in acts)

  target = _taking(takes_us)
  assert _pruned(dict.fromkeys(options, 1), target) == options & acting


def test_one_of_two_redundant_options_stays():
  target = _taking(lambda config: 90 if {*config.options} <= {"c"} else 50)
  assert _pruned({"a": 1, "b": 1, "c": 1}, target) in ({"a"}, {"b"})


def test_a_plan_sets_only_the_kept_options_that_have_an_effect():
  to_the_end: list[set[str]] = []

  def peak_bytes(config: config_lib.XlaConfig) -> int:
    to_the_end.append(set(config.options))
    return 2**30

  # Of the published recipes' options, these two make this step faster.
  target = fake_target.of(
    lambda config: hlo_text.exposed_gather(
      90 - 20 * sum(n in config.options for n in (_DOUBLED, "slow"))
    ),
    peak_bytes=peak_bytes,
  )
  tuning = tuner.tune(target)
  assert set(tuning.kept.config.options) > {_DOUBLED}
  assert set(tuning.plan.xla.options) == {_DOUBLED}
  assert to_the_end == [set(), set(tuning.kept.config.options)]
  assert [e.knob for e in tuning.effects if e.knob.startswith("xla_")] == [
    _DOUBLED
  ]
  assert tuning.plan.prediction.xla_us == (
    tuning.kept.under_nccl_defaults.step_time_us
  )


def test_a_plan_drops_an_option_that_costs_even_a_little_time():
  def takes_us(config: config_lib.XlaConfig) -> float:
    gains, costs = ("xla_a" in config.options), ("xla_b" in config.options)
    return 90 - 20 * gains + 0.02 * costs  # Less than a sure difference.

  tuning = tuner.tune(
    _taking(takes_us), arms=[arm_steps.arm("recipe", xla_a=1, xla_b=1)]
  )
  assert set(tuning.plan.xla.options) == {"xla_a"}


@pytest.mark.parametrize(
  ("options", "inert"),
  [
    # Options of a recipe that are for other programs.
    ({_COMMANDS: "", _BY_DIM: False, _DOUBLED: True}, {_COMMANDS, _BY_DIM}),
    # The scheduler that XLA turns on by default,
    ({_SCHEDULER: True, _DOUBLED: True}, {_SCHEDULER}),
    # but not without its estimates.
    ({_ESTIMATES: False, _SCHEDULER: True}, set()),
  ],
)
def test_options_without_an_effect_on_a_real_step_are_removed(
  fsdp_step: Callable[..., jax.stages.Lowered],
  options: dict[str, bool | str],
  inert: set[str],
) -> None:
  target = compiles.target(fsdp_step())
  assert _pruned(options, target) == options.keys() - inert
