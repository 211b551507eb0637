# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Account of a run: what its step takes, and what tuning may still cost.

Tuning may cost 2 % of a run of 1,000 steps, and of a longer run 2 % of what it
is so far. What would cost more is not begun: a profile and a search wait until
the run is long enough for the least of both, the search may take no more than
the run can still pay for, and a proposal is tried, or measured further, only
where another one as bad as the worst would be within the bound.
"""

from __future__ import annotations

import math

from lagom_xla.live import script as script_lib
from lagom_xla.live.loop import baseline as baseline_lib
from lagom_xla.live.loop import blocks
from lagom_xla.live.loop import candidate
from lagom_xla.live.loop import overhead as overhead_lib
from lagom_xla.live.loop import surroundings
from lagom_xla.live.loop import verdict as verdict_lib

# 2 % of a run of 1,000 steps.
MOST_STEPS = 20.0
# What a trace costs a run until it is read: 73 to 110 ms, by wall clock beside
# plain jit, of steps of 1.4 to 5 ms on eight XLA:CPU devices with two cores.
_TRACE_S = 0.1
# What a search that looks at one way, and its candidate, take of a core at
# least, in first compiles of the step: the search 0.3 to 2.4 on XLA:CPU, most
# for 48 layers of small gradients (0.62 s, where a compile takes 0.26), and the
# candidate one. (The steps of `python -m benchmarks.live`, JAX 0.10.2)
_LEAST_COMPILES = 3.5
# What it takes of a core to import what searches on CPUs, where `import jax`
# takes 0.53 s: a thread does it first. (`python -m benchmarks.overhead`)
_IMPORTS_S = 0.42


class Account:
  """What is known of a step's time, and of what tuning costs of it.

  Args:
    most_steps: What tuning may cost a run of 1,000 steps, in steps.
    lost_per_core: See `surroundings.Surroundings`.

  Attributes:
    overhead: What tuning has cost so far.
    usual: What a step of the variant in use takes; None before it is known.
  """

  def __init__(self, most_steps: float, lost_per_core: float):
    self.overhead = overhead_lib.Overhead(is_searched_here=lost_per_core > 0)
    self.usual: baseline_lib.Usual | None = None
    self._most_steps = most_steps
    self._lost_per_core = lost_per_core
    # Of the variant in use, over what jit runs.
    self._ratio = 1.0
    self._compile_s = 0.0

  @property
  def step_s(self) -> float:
    """What the step takes as jit runs it, in seconds; 0 before it is known."""
    return 0.0 if self.usual is None else self.usual.step_s / self._ratio

  def learn(self, baseline: baseline_lib.Baseline) -> None:
    """Takes a baseline; the first one shows what a compile takes, too."""
    if self.usual is None:
      self._compile_s = baseline.compile_s
    self.usual = baseline.usual

  def count(
    self, script: script_lib.Script, played: surroundings.Played
  ) -> None:
    """Counts a script that was played; blocks of a baseline cost nothing."""
    is_baseline = script.state is script_lib.State.BASELINE
    self.overhead.count(script, played, None if is_baseline else self.usual)

  def adopt(self, verdict: verdict_lib.Verdict) -> None:
    """The proposal that was tried last is in use."""
    assert self.usual is not None
    self._ratio *= verdict.ratio
    self.usual = self.usual.times(verdict.ratio, verdict.error)
    self.overhead.adopt()

  def calls_before_search(self) -> int:
    """Calls that the run must have before a search begins; 0 if it may."""
    return self._least_calls(self.search_s)

  @property
  def search_s(self) -> float:
    """What a profile, the least search and its first candidate should cost."""
    return _TRACE_S + self._beside_search_s + self._compiles_s(_LEAST_COMPILES)

  def most_search_s(self) -> float | None:
    """What a search may take of a core; None if there is no bound.

    So much that the run can still pay for all of it, and for a candidate.
    """
    if not self._lost_per_core:
      return None
    left_s = self._most_s - max(self.overhead.cost.seconds, 0.0)
    left_s -= self._beside_search_s + self._compiles_s(1)
    return max(left_s, 0.0) / self._lost_per_core

  @property
  def _beside_search_s(self) -> float:
    """What a search costs beside what it takes: imports, a measurement."""
    if not self._lost_per_core:
      return 0.0
    return _IMPORTS_S * self._lost_per_core + self._measurement_s

  @property
  def _measurement_s(self) -> float:
    """What a candidate loses that is just so slow that two pairs reject it."""
    segments = blocks.compose(
      0,
      1,
      step_s=self.step_s,
      num_before=0,
      num_pairs=verdict_lib.HOPELESS_LOOK,
    )
    num_calls = candidate.NUM_FIRST + sum(
      segment.num_calls for segment in segments if segment.variant
    )
    return num_calls * (verdict_lib.HOPELESS_RATIO - 1) * self.step_s

  @property
  def _most_s(self) -> float:
    """What tuning may cost the run so far."""
    num_calls = max(self.overhead.num_calls, overhead_lib.RUN_CALLS)
    return self._most_steps * self.step_s * num_calls / overhead_lib.RUN_CALLS

  def objection(self, num_compiles: int = 0) -> str | None:
    """Why nothing more should be tried; None if something may be.

    What comes next is taken to cost as much as the worst proposal so far: the
    next proposal, or as many more pairs of the one that is being measured.

    Args:
      num_compiles: What comes next costs so many at least.
    """
    next_s = max(self._compiles_s(num_compiles), self.overhead.worst_trial_s)
    if not self._least_calls(next_s):
      return None
    return (
      f"tuning has cost {self.overhead.cost.seconds / self.step_s:.1f} steps,"
      " and to try more might make it more than"
      f" {self._most_s / self.step_s:.0f}"
    )

  def _compiles_s(self, num_compiles: float) -> float:
    """What the run loses while so many compiles go on beside it."""
    return num_compiles * self._compile_s * self._lost_per_core

  def _least_calls(self, next_s: float) -> int:
    """Calls a run must have to pay for what comes next; 0 if it has them."""
    run_calls = overhead_lib.RUN_CALLS
    steps = (self.overhead.cost.seconds + next_s) / self.step_s
    least = math.ceil(run_calls * steps / self._most_steps)
    return least if least > max(self.overhead.num_calls, run_calls) else 0
