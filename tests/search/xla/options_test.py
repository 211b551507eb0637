# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The search over options adds values to the best arm, and removes options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from lagom_xla import errors
from lagom_xla import validation
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import lower_bound
from lagom_xla.costs import settings as settings_lib
from lagom_xla.passes import hlo
from lagom_xla.report import results
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import joint
from lagom_xla.search.xla import knobs
from lagom_xla.tuner import tuner

_HBM_BYTES = arm_steps.H100.gpu.hbm_bytes


# The order in which values are tried, on a step with four options.

_VALUES = ("v", "w", "x", "y")


def _search(
  takes_us: Mapping[str, float], *, start: str = "", num_compiles: int = 99
) -> tuple[list[str], str]:
  """The options that a search compiles, in order, and the best of them.

  Args:
    takes_us: a step's time besides its all-gather, by the options set; 200 if
      missing.
    start: the options of an arm.
    num_compiles: the number of compiles after which the time is up.
  """

  def chosen(candidate: candidates.Candidate | candidates.Refused) -> str:
    return "".join(sorted(candidate.config.options))

  compiled: list[str] = []
  values = [knobs.Value(label=v, options={v: 1}) for v in _VALUES]
  arm = arm_steps.arm("start", **dict.fromkeys(start, 1))
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(knobs, "worth_trying", lambda _: values)
    patch.setattr(time, "monotonic", lambda: float(len(compiled)))
    found = joint.search(
      fake_target.of(
        lambda config: hlo_text.exposed_gather(
          takes_us.get("".join(sorted(config.options)), 200.0)
        )
      ),
      without_plugin=channel_cap.WithoutPlugin(limit=None),
      seconds=1 + num_compiles,
      arms=[arm] if start else [],
      found=lambda candidate: compiled.append(chosen(candidate)),
    )
  assert len(compiled) == len(set(compiled))
  assert compiled[0] == ""
  return compiled[1:], chosen(min(found.scheduled, key=candidates.tuned_us))


def test_values_that_gained_are_combined_in_order_of_gain():
  takes_us = {"w": 190.0, "y": 180.0, "v": 195.0, "wy": 170.0, "vwy": 172.0}
  tried, best = _search(takes_us)
  assert tried[:6] == ["v", "w", "x", "y", "wy", "vwy"]
  assert best == "wy"


def test_another_round_follows_only_a_round_that_gained_enough():
  little_us = 200.0 * (1 - candidates.LEAST_GAIN / 2)
  for us, follows in ((little_us, False), (190.0, True)):
    tried, best = _search({"w": us})
    assert best == "w" and ("vw" in tried) == follows


@pytest.mark.parametrize(
  ("takes_us", "start", "expected"),
  [
    # A value that costs time once others are set is removed.
    ({"v": 190.0, "vw": 180.0, "vwx": 170.0, "wx": 150.0}, "", "wx"),
    # A value that gained nothing is retried with later ones.
    ({"x": 190.0, "vx": 180.0}, "", "vx"),
    ({"y": 190.0, "vwy": 180.0}, "", "y"),  # No single value leads there.
    # An option of the start is removed if that is faster.
    ({"ab": 190.0, "b": 180.0}, "ab", "b"),
    # A default that is as fast as the best arm is the start.
    ({"v": 190.0}, "ab", "v"),
  ],
)
def test_values_are_added_and_removed_until_the_best_set_is_found(
  takes_us: Mapping[str, float], start: str, expected: str
):
  assert _search(takes_us, start=start)[1] == expected


@settings(max_examples=25, deadline=None)
@given(
  takes_us=st.fixed_dictionaries(
    {
      "".join(chosen): st.integers(10, 30).map(lambda tens: 10.0 * tens)
      for size in range(1, 5)
      for chosen in itertools.combinations(_VALUES, size)
    }
  ),
  num_compiles=st.integers(1, 12),
)
def test_a_search_that_runs_out_of_time_returns_the_best_so_far(
  takes_us: dict[str, float], num_compiles: int
):
  whole, _ = _search(takes_us)
  tried, best = _search(takes_us, num_compiles=num_compiles)
  assert tried == whole[:num_compiles]
  known = {"": 200.0, **{t: takes_us[t] for t in tried}}
  assert known[best] == min(known.values())


# Arms as starts of the search.


def test_arms_are_compiled_even_without_time_for_a_search():
  arm = arm_steps.arm("recipe", xla_a=1)
  found = joint.search(arm_steps.target("xla_a"), arms=[arm], seconds=1e-9)
  assert [c.config for c in found.others] == [arm.config]
  assert found.best is found.others[0]


def test_the_kept_candidate_is_never_slower_than_an_arm():
  # No knob sets all three, and each is part of the gain.
  found = joint.search(arm_steps.target(*arm_steps.EVERYTHING))
  maxtext = found.found(found.arms[0].config)
  assert isinstance(maxtext, candidates.Candidate)
  assert found.fastest_arm is maxtext
  assert arm_steps.us(maxtext) < arm_steps.us(found.default)
  for arm in found.arms:
    other = found.found(arm.config)
    assert isinstance(other, candidates.Candidate)
    assert arm_steps.us(found.best) <= arm_steps.us(other)
    assert found.best.tuned.step_time_us <= other.tuned.step_time_us


def test_a_plan_may_beat_the_original_modules_bound_but_not_its_own():
  # Options change the kernel's time.
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

  target = fake_target.of(schedule)
  alone = joint.search(target, arms=())
  assert alone.best is alone.default
  found = joint.search(target, arms=[arm_steps.arm("recipe", xla_a=1)])
  assert found.best.config.options == {"xla_a": 1, arm_steps.SLOP: 120}


# Refused candidates, and candidates that are not compiled.


def test_arms_that_xla_refuses_or_that_exceed_memory_are_ignored():
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    if "xla_refused" in config.options:
      raise errors.CompileError("no such luck")
    return arm_steps.step(100.0 if config.options else 200.0, is_full=True)

  large = arm_steps.arm("large", xla_large=1)
  found = joint.search(
    fake_target.of(
      schedule,
      peak_bytes=lambda config: _HBM_BYTES * 2 if config.options else 2**30,
    ),
    arms=[arm_steps.arm("refused", xla_refused=1), large],
  )
  refused = found.found(large.config)
  assert isinstance(refused, candidates.Refused)
  assert f"takes of {_HBM_BYTES / 1e9:.1f} GB" in refused.reason
  assert found.best is found.fastest_arm is found.default


def test_options_that_exceed_memory_are_not_compiled_with_others():
  tried: list[config_lib.XlaConfig] = []

  def is_large(config: config_lib.XlaConfig) -> bool:
    return config.options.get(arm_steps.SLOP) == 120

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    tried.append(config)
    return arm_steps.step(
      200.0 - 5 * (arm_steps.HEURISTIC in config.options), is_full=True
    )

  target = fake_target.of(
    schedule, peak_bytes=lambda config: _HBM_BYTES * (1 + is_large(config))
  )
  found = joint.search(target, arms=())
  (refused,) = (c for c in found.others if isinstance(c, candidates.Refused))
  assert refused.is_too_large and is_large(refused.config)
  assert arm_steps.HEURISTIC in found.best.config.options
  assert {tuple(c.options) for c in tried if is_large(c)} == {(arm_steps.SLOP,)}


def test_candidates_slower_than_an_arm_are_scheduled_but_not_compiled():
  compiled: list[set[str]] = []

  def peak_bytes(config: config_lib.XlaConfig) -> int:
    compiled.append(set(config.options))
    return 2**30

  target = fake_target.of(
    lambda config: arm_steps.step(
      200.0 - 5 * ("xla_a" in config.options), is_full=True
    ),
    peak_bytes=peak_bytes,
  )
  found = joint.search(target, arms=[arm_steps.arm("recipe", xla_a=1, xla_b=1)])
  scheduled = [set(c.config.options) for c in found.scheduled]
  assert any("xla_a" not in options for options in scheduled[1:])
  assert set() in compiled
  assert all("xla_a" in options for options in compiled if options)


# A recipe's options are removed where they cost time.


@settings(max_examples=25)
@given(
  times_us=st.fixed_dictionaries(
    {
      options: st.integers(2, 30).map(lambda tens: 10 * tens)
      for options in ("a", "b", "c", "ab", "ac", "bc")
    }
  )
)
def test_a_plan_is_never_slower_because_of_one_of_its_options(
  times_us: dict[str, int],
) -> None:
  """Any joint effect of options, of which a recipe sets three."""
  times_us = {"": 320, "abc": 310, **times_us}

  def takes_us(config: config_lib.XlaConfig) -> int:
    return times_us["".join(n for n in "abc" if n in config.options)]

  target = fake_target.of(lambda c: hlo_text.exposed_gather(takes_us(c)))
  recipe = arm_steps.arm("recipe", a=1, b=1, c=1)
  plan = tuner.tune(target, arms=[recipe]).plan.xla
  assert takes_us(plan) <= 310
  for name in plan.options:
    assert takes_us(plan) <= takes_us(plan.without_options([name]))


def test_options_of_a_recipe_that_slow_a_real_step_are_removed(
  h100s: Sequence[jax.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
  """Perceptrons in a hybrid of FSDP and TP, with too much in flight at once.

  As with `--flags-only`: candidates slower than a recipe are never kept.
  """
  lowered = perceptrons.lower_scanned(
    h100s,
    data=4,
    num_layers=16,
    width=2048,
    hidden=8192,
    rows_per_device=8192,
  )
  value = knobs.Value(
    label="recipe",
    options={
      **{knobs.PIPELINED[k]: True for k in ("all-gather", "all-reduce")},
      "xla_gpu_enable_while_loop_double_buffering": True,
      "xla_gpu_experimental_parallel_collective_overlap_limit": 4,
    },
  )
  (as_installed,) = knobs.offered([value])
  recipe = arm_steps.arm("recipe", **as_installed.options)
  monkeypatch.setattr(knobs, "worth_trying", lambda _: ())
  found = joint.search(
    target_lib.of_step(lowered, arm_steps.H100, name="step"),
    without_plugin=channel_cap.WithoutPlugin(limit=settings_lib.by_option),
    arms=[recipe],
  )
  for name in recipe.config.options:
    without = found.found(recipe.config.without_options([name]))
    assert isinstance(without, candidates.Candidate)
    at_most_us = candidates.tuned_us(without) * (1 + candidates.LEAST_GAIN)
    assert candidates.tuned_us(found.best) < at_most_us
