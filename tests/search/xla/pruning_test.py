# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A plan holds the options that act on its step, and no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import jax

import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import lowered
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import hlo
from lagom_xla.search import nccl
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import pruning
from lagom_xla.tuner import tuner

_H100S = cluster_lib.parse("1x8xh100")
_SEARCHER = nccl.SEARCHERS[nccl.DEFAULT_SEARCHER]
_DOUBLED = "xla_gpu_enable_while_loop_double_buffering"
_BY_DIM = "xla_gpu_enable_all_gather_combine_by_dim"
_GATHERED = "xla_gpu_all_gather_combine_threshold_bytes"
_COMMANDS = "xla_gpu_enable_command_buffer"
_SCHEDULER = "xla_gpu_enable_latency_hiding_scheduler"
_ESTIMATES = "xla_gpu_enable_analytical_sol_latency_estimator"


Takes = Callable[[Mapping[str, object]], int]


def _pruned(options: Mapping[str, int], takes_us: Takes) -> set[str]:
  target = fake_target.FakeTarget(
    name="step",
    cluster=_H100S,
    scheduled=lambda config: hlo_text.exposed_gather(takes_us(config.options)),
  )
  kept = _evaluated(config_lib.XlaConfig(options=options), target)
  return set(pruning.pruned(kept, evaluation.Steps(target)).options)


def _evaluated(
  config: config_lib.XlaConfig, target: target_lib.Target
) -> candidates.Candidate:
  return evaluation.evaluate_or_raise(config, target=target, searcher=_SEARCHER)


@settings(deadline=None, max_examples=20)
@given(
  options=st.sets(st.sampled_from("abcdef")),
  acting=st.sets(st.sampled_from("abcdef")),
)
def test_options_that_act_stay_and_others_go(
  options: set[str], acting: set[str]
) -> None:
  def takes_us(given: Mapping[str, object]) -> int:
    return 100 - sum(
      2**i for i, n in enumerate("abcdef") if n in given and n in acting
    )

  assert _pruned(dict.fromkeys(options, 1), takes_us) == options & acting


def test_of_two_options_of_which_one_would_do_one_stays():
  found = _pruned(
    {"a": 1, "b": 1, "c": 1}, lambda o: 50 if "a" in o or "b" in o else 90
  )
  assert found in ({"a"}, {"b"})


def test_a_plan_sets_only_what_acted_of_what_was_compiled_to_the_end():
  to_the_end: list[set[str]] = []

  def compile_fully(config: config_lib.XlaConfig) -> lowered.Compilation:
    to_the_end.append(set(config.options))
    return lowered.Compilation(
      module=schedule(config), compiled=None, peak_bytes=2**30
    )

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    # Of the published recipes' options, these two make this step faster.
    return hlo_text.exposed_gather(
      90 - 20 * sum(n in config.options for n in (_DOUBLED, "slow"))
    )

  target = fake_target.FakeTarget(
    name="step", cluster=_H100S, scheduled=schedule, compiled=compile_fully
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


def test_what_a_recipe_sets_for_other_programs_is_pruned(
  h100s: object, fsdp_step: Callable[..., jax.stages.Lowered]
) -> None:
  target = target_lib.of_step(fsdp_step(), _H100S, name="step")
  config = config_lib.XlaConfig(
    options={_COMMANDS: "", _BY_DIM: False, _DOUBLED: True}
  )
  kept = _evaluated(config, target)
  assert set(pruning.pruned(kept, evaluation.Steps(target)).options) == {
    _DOUBLED
  }


def test_the_scheduler_that_xla_chose_itself_goes(
  h100s: object, fsdp_step: Callable[..., jax.stages.Lowered]
) -> None:
  target = target_lib.of_step(fsdp_step(), _H100S, name="step")
  config = config_lib.XlaConfig(options={_SCHEDULER: True, _DOUBLED: True})
  kept = _evaluated(config, target)
  assert set(pruning.pruned(kept, evaluation.Steps(target)).options) == {
    _DOUBLED
  }


def test_a_scheduler_that_xla_would_leave_off_stays(
  h100s: object, fsdp_step: Callable[..., jax.stages.Lowered]
) -> None:
  """Without its estimates XLA switches it on for no program."""
  target = target_lib.of_step(fsdp_step(), _H100S, name="step")
  config = config_lib.XlaConfig(options={_ESTIMATES: False, _SCHEDULER: True})
  kept = _evaluated(config, target)
  assert pruning.pruned(kept, evaluation.Steps(target)) == config
