# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A search takes back options that cost once others are beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import jax
import pytest

import arm_steps
from benchmarks.workloads import scanned
import fake_target
import gather_steps
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import settings as settings_lib
from lagom_xla.passes import hlo
from lagom_xla.search import nccl
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import full_compiles
from lagom_xla.search.xla import hindsight
from lagom_xla.search.xla import joint
from lagom_xla.search.xla import knobs
from lagom_xla.search.xla import moves
from lagom_xla.tuner import tuner

H100 = cluster_lib.parse("1x8xh100")
_PIPELINED = ("all-gather", "all-reduce")


def _candidate(options: Mapping[str, int]) -> candidates.Candidate:
  """A step that is shorter by a microsecond for each option."""

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    one, one_done = hlo_text.all_gather("one", 2**18)
    two, two_done = hlo_text.all_gather("two", 2**18)
    return hlo_text.load(f"""
  p = f32[256,256] parameter(0)
  {one}
  {one_done}
  {two}
  {two_done}
  {hlo_text.kernel("kernel", 100.0 - len(config.options))}
  ROOT result = (f32[256,256]) tuple(kernel)
""")

  return evaluation.evaluate_or_raise(
    config_lib.XlaConfig(options=dict(options)),
    target=fake_target.FakeTarget(
      name="step", cluster=H100, scheduled=schedule
    ),
    searcher=nccl.SEARCHERS["lagom"],
  )


def _dropped(
  default: Mapping[str, int], best: Mapping[str, int]
) -> list[set[str]]:
  search = candidates.Search(default=_candidate(default))
  search = search.with_candidate(_candidate(best))
  dropped = moves.without(search, hindsight.Hindsight())
  return [set(move.config.options) for move in dropped]


def test_each_option_that_was_added_is_dropped_alone():
  assert _dropped({}, {"a": 1, "b": 1, "c": 1}) == [
    {"b", "c"},
    {"a", "c"},
    {"a", "b"},
  ]


def test_what_no_knob_sets_is_never_dropped_of_what_a_search_began_with():
  assert _dropped({"a": 1}, {"a": 1, "b": 1, "c": 1}) == [
    {"a", "c"},
    {"a", "b"},
  ]
  assert not _dropped({"a": 1}, {"a": 1})


def test_thresholds_of_a_recipe_are_dropped_after_what_was_added():
  recipe = {knobs.OPTIONS["all-gather"]: 1, "another": 1}
  assert _dropped(recipe, {**recipe, "a": 1}) == [
    {*recipe},
    {"another", "a"},
  ]


@pytest.mark.parametrize(
  "option", [knobs.OPTIONS["all-reduce"], *knobs.PIPELINED.values()]
)
def test_what_acts_on_no_collective_is_not_dropped_of_a_recipe(option: str):
  """The step has two all-gathers, in no loop."""
  assert not _dropped({option: 1}, {option: 1})


def test_few_options_are_dropped():
  best = {f"option_{i}": 1 for i in range(2 * moves.MOST_DROPS)}
  assert len(_dropped({}, best)) == moves.MOST_DROPS


def test_what_gained_least_when_it_was_added_is_dropped_first():
  default, best = _candidate({}), _candidate({"a": 1, "b": 1, "c": 1})
  seen = hindsight.Hindsight()
  for name, num_options in (("a", 2), ("b", 1), ("c", 3)):
    value = knobs.Value(label=name, options={name: 1})
    with_it = _candidate({str(i): 1 for i in range(num_options)})
    seen.note(value, None, default, with_it)
  search = candidates.Search(default=default).with_candidate(best)
  dropped = moves.without(search, seen)
  assert [set(move.config.options) for move in dropped] == [
    {"a", "c"},
    {"b", "c"},
    {"a", "b"},
  ]


def test_a_search_keeps_less_than_it_added_where_that_is_faster():
  heuristic = "xla_gpu_experimental_enable_heuristic_collective_combining"

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    # Each gains when it is added, and the first one costs beside the other.
    gained_us = len(config.options)
    if heuristic in config.options:
      gained_us += 1 if gather_steps.GATHER in config.options else 3
    return gather_steps.module(
      *gather_steps.APART, kernels_us=3.0, tail_us=100.0 - gained_us
    )

  found = joint.search(gather_steps.target(schedule), arms=())
  best = found.best
  added_more = [
    c
    for c in found.scheduled[: found.scheduled.index(best)]
    if best.config.options.items() < c.config.options.items()
  ]
  assert gather_steps.GATHER not in best.config.options
  assert added_more
  assert all(best.tuned.step_time_us < c.tuned.step_time_us for c in added_more)


_TENS_US = st.integers(2, 30).map(lambda tens: 10 * tens)


@settings(max_examples=25)
@given(
  times_us=st.fixed_dictionaries(
    {
      frozenset(options): _TENS_US
      for options in ("a", "b", "c", "ab", "ac", "bc")
    }
  )
)
def test_a_plan_is_no_slower_for_any_of_its_options(
  times_us: dict[frozenset[str], int],
) -> None:
  """Whatever options do together, of which a recipe sets three."""
  times_us = {frozenset(): 320, frozenset("abc"): 310, **times_us}

  def takes_us(config: config_lib.XlaConfig) -> int:
    return times_us[frozenset(n for n in "abc" if n in config.options)]

  target = fake_target.FakeTarget(
    name="step",
    cluster=H100,
    scheduled=lambda config: hlo_text.exposed_gather(takes_us(config)),
  )
  recipe = arm_steps.arm("recipe", a=1, b=1, c=1)
  plan = tuner.tune(target, arms=[recipe]).plan.xla
  assert takes_us(plan) <= 310
  for name in plan.options:
    assert takes_us(plan) <= takes_us(plan.without_options([name]))


def test_a_plan_takes_back_what_slows_a_real_step_in_a_recipe(
  h100s: Sequence[jax.Device],
) -> None:
  """Perceptrons in a hybrid of FSDP and TP, with too much in flight at once.

  As of `--flags-only`: what is behind a recipe without a plugin is never kept.
  """
  lowered = scanned.lower(
    h100s,
    data=4,
    num_layers=16,
    width=2048,
    hidden=8192,
    rows_per_device=8192,
  )
  target = fake_target.schedule_only(
    target_lib.of_step(lowered, H100, name="step")
  )
  value = knobs.Value(
    label="recipe",
    options={
      **dict.fromkeys((knobs.PIPELINED[k] for k in _PIPELINED), True),
      "xla_gpu_enable_while_loop_double_buffering": True,
      "xla_gpu_experimental_parallel_collective_overlap_limit": 4,
    },
  )
  (as_installed,) = knobs.offered([value])
  recipe = arm_steps.arm("recipe", **as_installed.options)
  searcher = channel_cap.WithoutPlugin(limit=settings_lib.by_option)
  found = joint.search(target, searcher=searcher, arms=[recipe], max_compiles=2)
  found, _ = full_compiles.of_best(target, found, None, searcher=searcher)
  for name in recipe.config.options:
    without = evaluation.evaluate_or_raise(
      recipe.config.without_options([name]), target=target, searcher=searcher
    )
    at_most_us = candidates.tuned_us(without) * (1 + candidates.LEAST_GAIN)
    assert candidates.tuned_us(found.best) < at_most_us
