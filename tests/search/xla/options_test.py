# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Options: from the best arm on, by single values and by leaving out."""

from __future__ import annotations

from collections.abc import Sequence
import itertools
import time

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import jax
import pytest

import arm_steps
from benchmarks.workloads import perceptrons
import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import validation
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import lowered
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import lower_bound
from lagom_xla.costs import settings as settings_lib
from lagom_xla.passes import hlo
from lagom_xla.report import results
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import full_compiles
from lagom_xla.search.xla import joint
from lagom_xla.search.xla import knobs
from lagom_xla.search.xla import options
from lagom_xla.tuner import tuner

H100 = cluster_lib.parse("1x8xh100")
_PIPELINED = ("all-gather", "all-reduce")


_VALUES = ("v", "w", "x", "y")


def _climb(
  takes_us: dict[frozenset[str], float],
  *,
  start: str = "",
  num_compiles: int = 99,
) -> tuple[list[frozenset[str]], frozenset[str]]:
  """What is compiled of options that take so long together, and the best.

  Args:
    takes_us: what a step takes beside its all-gather, by what is set; 200 where
      that is not told.
    start: what it begins with.
    num_compiles: after how many the time is up.
  """
  tried: list[frozenset[str]] = []

  def evaluate(config: config_lib.XlaConfig) -> candidates.Candidate:
    options = frozenset(config.options)
    module = arm_steps.step(takes_us.get(options, 200.0))
    return evaluation.evaluate_or_raise(
      config,
      target=fake_target.FakeTarget(
        name="step", cluster=H100, scheduled=lambda _: module
      ),
      searcher=channel_cap.WithoutPlugin(limit=None),
    )

  def counted(config: config_lib.XlaConfig) -> candidates.Candidate:
    tried.append(frozenset(config.options))
    return evaluate(config)

  def progress(_: str) -> None:
    nonlocal until_s
    if len(tried) >= num_compiles:
      clock.append(until_s)

  values = [knobs.Value(label=v, options={v: 1}) for v in _VALUES]
  until_s = time.monotonic() + 1000
  clock: list[float] = []
  default = evaluate(config_lib.DEFAULT)
  so_far = candidates.Search(default=default)
  begin = default
  if start:
    begin = evaluate(config_lib.XlaConfig(options=dict.fromkeys(start, 1)))
    so_far = so_far.with_candidate(begin)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(
      options.time, "monotonic", lambda: clock[-1] if clock else until_s - 1000
    )
    found = options.climb(
      so_far,
      begin,
      counted,
      changes=lambda _: options.settings(values),
      drops=options.drops,
      in_turn=evaluation.one_by_one,
      until_s=until_s,
      progress=progress,
    )
  best = min(found.scheduled, key=candidates.tuned_us)
  return tried, frozenset(best.config.options)


def _sets(*names: str) -> list[frozenset[str]]:
  return [frozenset(name) for name in names]


def test_what_gained_alone_is_combined_what_gained_most_first():
  takes_us = {"w": 190.0, "y": 180.0, "v": 195.0, "wy": 170.0, "vwy": 172.0}
  tried, best = _climb({frozenset(k): us for k, us in takes_us.items()})
  assert tried[:6] == _sets("v", "w", "x", "y", "wy", "vwy")
  assert best == frozenset("wy")


def test_another_round_follows_one_that_gained_enough():
  little_us = 200.0 * (1 - candidates.LEAST_GAIN / 2)
  tried, best = _climb({frozenset("w"): little_us})
  assert best == frozenset("w") and frozenset("wv") not in tried
  tried, best = _climb({frozenset("w"): 190.0})
  assert frozenset("wv") in tried


def test_what_costs_once_others_are_beside_it_is_left_out():
  takes_us = {"v": 190.0, "vw": 180.0, "vwx": 170.0, "wx": 150.0}
  tried, best = _climb({frozenset(k): us for k, us in takes_us.items()})
  assert best == frozenset("wx")
  assert tried.index(frozenset("vwx")) < tried.index(frozenset("wx"))


def test_what_gained_nothing_is_tried_again_beside_what_came_after_it():
  _, best = _climb({frozenset("x"): 190.0, frozenset("vx"): 180.0})
  assert best == frozenset("vx")
  _, best = _climb({frozenset("y"): 190.0, frozenset("vwy"): 180.0})
  assert best == frozenset("y")  # No single value leads there.


def test_what_a_start_sets_is_left_out_where_that_is_faster():
  _, best = _climb({frozenset("ab"): 190.0, frozenset("b"): 180.0}, start="ab")
  assert best == frozenset("b")


def test_nothing_is_compiled_twice():
  tried, _ = _climb({frozenset("w"): 190.0, frozenset("wy"): 180.0})
  assert len(tried) == len(set(tried))


@settings(max_examples=25, deadline=None)
@given(
  takes_us=st.fixed_dictionaries(
    {
      frozenset(chosen): st.integers(10, 30).map(lambda tens: 10.0 * tens)
      for size in range(1, 5)
      for chosen in itertools.combinations(_VALUES, size)
    }
  ),
  num_compiles=st.integers(1, 12),
)
def test_whenever_the_time_is_up_the_best_so_far_stands(
  takes_us: dict[frozenset[str], float], num_compiles: int
):
  whole, _ = _climb(takes_us)
  tried, best = _climb(takes_us, num_compiles=num_compiles)
  assert tried == whole[:num_compiles]
  known = {frozenset[str](): 200.0, **{t: takes_us[t] for t in tried if t}}
  assert known[best] == min(known.values())


def test_a_default_as_fast_as_the_best_arm_is_the_start():
  arm = arm_steps.arm("recipe", xla_a=1)
  target = arm_steps.target(arm_steps.HEURISTIC)
  found = joint.search(target, arms=[arm])
  assert list(found.best.config.options) == [arm_steps.HEURISTIC]


def test_arms_are_compiled_however_little_time_there_is():
  arm = arm_steps.arm("recipe", xla_a=1)
  found = joint.search(arm_steps.target("xla_a"), arms=[arm], seconds=1e-9)
  assert [c.config for c in found.others] == [arm.config]
  assert found.best is found.others[0]


def test_what_is_kept_is_never_behind_an_arm():
  # No knob sets the three together, and each is a part of the gain.
  target = arm_steps.target(*arm_steps.EVERYTHING)
  found = joint.search(target)
  maxtext = found.found(found.arms[0].config)
  assert isinstance(maxtext, candidates.Candidate)
  assert found.fastest_arm is maxtext
  assert arm_steps.us(maxtext) < arm_steps.us(found.default)
  for arm in found.arms:
    other = found.found(arm.config)
    assert isinstance(other, candidates.Candidate)
    assert arm_steps.us(found.best) <= arm_steps.us(other)
    assert found.best.tuned.step_time_us <= other.tuned.step_time_us


def test_a_plan_may_beat_the_bound_of_todays_module_but_not_that_of_both():
  # Options change what the kernel takes.
  tuning = tuner.tune(arm_steps.target(*arm_steps.EVERYTHING, slow_us=400.0))
  assert tuning.timeline_after.step_time_us < lower_bound.us(tuning.before)
  assert tuning.lower_bound_us <= tuning.timeline_after.step_time_us
  predicted = validation.write(results.tuning(tuning))["predicted"]
  assert predicted["lower_bound_us"] == tuning.lower_bound_us


def test_options_are_searched_from_the_best_arm():
  # Only the recipe's schedule is short of memory.
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    is_full = "xla_a" in config.options
    has_both = config.options.get(arm_steps.SLOP) == 120 and is_full
    kernels_us = 20.0 if has_both else 40.0 - 2 * is_full
    return arm_steps.step(kernels_us, is_full=is_full)

  target = fake_target.FakeTarget(
    name="step", cluster=arm_steps.H100, scheduled=schedule
  )
  alone = joint.search(target, arms=())
  assert alone.best is alone.default
  found = joint.search(target, arms=[arm_steps.arm("recipe", xla_a=1)])
  assert found.best.config.options == {"xla_a": 1, arm_steps.SLOP: 120}


def test_more_of_what_no_gpu_can_hold_is_not_compiled():
  tried: list[config_lib.XlaConfig] = []

  def takes(config: config_lib.XlaConfig) -> bool:
    return config.options.get(arm_steps.SLOP) == 120

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    tried.append(config)
    return arm_steps.step(
      200.0 - 5 * (arm_steps.HEURISTIC in config.options), is_full=True
    )

  def compile_fully(config: config_lib.XlaConfig) -> lowered.Compilation:
    return lowered.Compilation(
      module=schedule(config),
      compiled=None,
      peak_bytes=arm_steps.H100.gpu.hbm_bytes * (2 if takes(config) else 1),
    )

  target = fake_target.FakeTarget(
    name="step",
    cluster=arm_steps.H100,
    scheduled=schedule,
    compiled=compile_fully,
  )
  found = joint.search(target, arms=())
  (refused,) = (c for c in found.others if isinstance(c, candidates.Refused))
  assert refused.is_too_large and takes(refused.config)
  assert arm_steps.HEURISTIC in found.best.config.options
  assert {tuple(c.options) for c in tried if takes(c)} == {(arm_steps.SLOP,)}


def test_what_is_slower_than_an_arm_is_not_compiled_to_the_end():
  compiled: list[set[str]] = []

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    return arm_steps.step(200.0 - 5 * ("xla_a" in config.options), is_full=True)

  def compile_fully(config: config_lib.XlaConfig) -> lowered.Compilation:
    compiled.append(set(config.options))
    return lowered.Compilation(
      module=schedule(config), compiled=None, peak_bytes=2**30
    )

  target = fake_target.FakeTarget(
    name="step",
    cluster=arm_steps.H100,
    scheduled=schedule,
    compiled=compile_fully,
  )
  found = joint.search(target, arms=[arm_steps.arm("recipe", xla_a=1, xla_b=1)])
  scheduled = [set(c.config.options) for c in found.scheduled]
  assert any("xla_a" not in options for options in scheduled[1:])
  assert set() in compiled
  assert all("xla_a" in options for options in compiled if options)


def test_an_arm_that_xla_refuses_or_no_gpu_can_hold_is_none():
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    if "xla_refused" in config.options:
      raise errors.CompileError("no such luck")
    return arm_steps.step(100.0 if config.options else 200.0)

  target = fake_target.FakeTarget(
    name="step", cluster=arm_steps.H100, scheduled=schedule
  )
  refused, large = (
    arm_steps.arm("refused", xla_refused=1),
    arm_steps.arm("large", xla_large=1),
  )
  found = joint.search(target, arms=[refused, large])
  candidate = found.found(large.config)
  assert candidate is found.fastest_arm is not found.default
  assert isinstance(candidate, candidates.Candidate)
  assert found.refused(candidate, "too large").fastest_arm is found.default


def test_an_arm_that_the_device_does_not_hold_is_refused_before_it_is_best():
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    is_large = "xla_large" in config.options
    return arm_steps.step(100.0 if is_large else 200.0, is_full=is_large)

  def compile_fully(config: config_lib.XlaConfig) -> lowered.Compilation:
    is_large = "xla_large" in config.options
    return lowered.Compilation(
      module=schedule(config),
      compiled=None,
      peak_bytes=arm_steps.H100.gpu.hbm_bytes * 2 if is_large else 2**30,
    )

  target = fake_target.FakeTarget(
    name="step",
    cluster=arm_steps.H100,
    scheduled=schedule,
    compiled=compile_fully,
  )
  arm = arm_steps.arm("large", xla_large=1)
  found = joint.search(target, arms=[arm])
  refused = found.found(arm.config)
  assert isinstance(refused, candidates.Refused)
  assert f"of {arm_steps.H100.gpu.hbm_bytes / 1e9:.1f} GB" in refused.reason
  assert found.best is found.fastest_arm is found.default


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
  lowered = perceptrons.lower_scanned(
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
  found = joint.search(target, searcher=searcher, arms=[recipe])
  found, _ = full_compiles.of_best(target, found, None, searcher=searcher)
  for name in recipe.config.options:
    without = evaluation.evaluate_or_raise(
      recipe.config.without_options([name]), target=target, searcher=searcher
    )
    at_most_us = candidates.tuned_us(without) * (1 + candidates.LEAST_GAIN)
    assert candidates.tuned_us(found.best) < at_most_us
