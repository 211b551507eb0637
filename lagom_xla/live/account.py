# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Account of a run: what its step takes, and what tuning may still cost.

Tuning may cost 2 % of a run of 1,000 steps, and of a longer run 2 % of what it
is so far. What would cost more is not begun: a profile and a search wait until
the run is long enough for the least of both, the search may take no more than
the run can still pay for, and a proposal is tried, or measured further, only
where another one as bad as the worst would be within the bound.

Its overhead is told with how sure that is. What blocks of calls took beyond
what the step usually takes is added up with its sign, so that noise cancels:
without an effect the sum is 0 on average. Its standard error is what is told
beside it. Of N calls, each with a deviation s, against a mean that n calls of
the baseline told, that is s sqrt(N + N^2 / n).

A block of the step in use that takes three times as long as usual has something
of the program's own in it, such as a checkpoint, and is told apart. But where
searches run on the cores of the step, one may slow it as much, and so may a
trace that is written or a candidate that is compiled. They can do so only while
they have a core. So as long as one goes on, such a block counts with what the
process took of cores beyond the usual, and only what it took longer still,
waiting for a disk or for other programs, is told apart.
"""

from __future__ import annotations

import dataclasses
import math

from lagom_xla.costs import in_words
from lagom_xla.live import candidate
from lagom_xla.live import script as script_lib
from lagom_xla.live import timing
from lagom_xla.live import verdict
from lagom_xla.live import verdict as verdict_lib

# A run that what was lost is told as a part of.
RUN_CALLS = 1000
# In which something works beside the step in use: it writes a trace, searches
# or compiles.
_WORKING = (
  script_lib.State.PROFILE,
  script_lib.State.SEARCH,
  script_lib.State.CANDIDATE,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
  """What tuning has cost.

  Attributes:
    seconds: Beyond what the same calls would have taken.
    error_s: Standard error of that.
    foreign_s: What blocks took beyond the usual that hold something of the
      program's own; not in `seconds`.
    num_foreign: How many such blocks.
  """

  seconds: float
  error_s: float
  foreign_s: float
  num_foreign: int

  @property
  def half_s(self) -> float:
    """Half of the 95 % interval of `seconds`."""
    # The standard error is told by the blocks of a baseline.
    num_errors = verdict.half_width(0.95, timing.NUM_BLOCKS - 1)
    return num_errors * self.error_s

  def in_words(self, step_s: float) -> str:
    """The same in steps of so many seconds."""
    steps, half = self.seconds / step_s, self.half_s / step_s
    words = (
      f"{steps:.1f} steps ({steps - half:.1f} to {steps + half:.1f}),"
      f" {100 * steps / RUN_CALLS:.2f} % of a run of {RUN_CALLS:,}"
    )
    if not self.num_foreign:
      return words
    return (
      f"{words}; not in it {self.foreign_s / step_s:.1f} steps in"
      f" {in_words.count(self.num_foreign, 'block')}"
      f" {timing.FOREIGN_RATIO:g} times as slow as usual, as with a"
      " checkpoint in them"
    )


class Overhead:
  """Sums what calls took beyond what they usually do, stalls and traces.

  Args:
    is_searched_here: Whether searches run on the cores of the step.

  Attributes:
    num_calls: Of the run so far.
  """

  def __init__(self, *, is_searched_here: bool) -> None:
    self.num_calls = 0
    self._is_searched_here = is_searched_here
    self._stalls_s = 0.0
    self._beside_s = 0.0
    self._trials_s: list[float] = []
    self._foreign_s = 0.0
    self._num_foreign = 0
    # Of the noise of calls, and of what they were compared with.
    self._variance_s2 = 0.0
    self._usual_error_s = 0.0

  @property
  def cost(self) -> Cost:
    """What tuning has cost so far."""
    return Cost(
      seconds=self._stalls_s + self._beside_s + math.fsum(self._trials_s),
      error_s=math.hypot(math.sqrt(self._variance_s2), self._usual_error_s),
      foreign_s=self._foreign_s,
      num_foreign=self._num_foreign,
    )

  @property
  def worst_trial_s(self) -> float:
    """What the most expensive proposal has cost; 0 where none has."""
    return max([0.0, *self._trials_s])

  def stall(self, seconds: float) -> None:
    """Adds what a call waited for."""
    self._stalls_s += seconds

  def count(
    self,
    script: script_lib.Script,
    played: script_lib.Played,
    usual: timing.Usual | None,
  ) -> None:
    """Counts a script that was played.

    Args:
      script: The script.
      played: What it took.
      usual: What a step of the variant in use takes; None where that is not
        known, so that nothing but stalls can be counted.
    """
    self.stall(played.stall_s)
    for segment, seconds, processor_s in zip(
      script.segments, played.durations_s, played.processor_s, strict=True
    ):
      self.num_calls += segment.num_calls
      if usual is None or seconds is None or segment.is_watched:
        continue
      is_trial = (
        segment.variant != script.in_use
        and script.state is not script_lib.State.PROFILE
      )
      usual_s = segment.num_calls * usual.step_s
      beyond_s = seconds - usual_s
      is_usual = segment.variant == script.in_use and not segment.is_traced
      if is_usual and seconds > timing.FOREIGN_RATIO * usual_s:
        worked_s = processor_s - segment.num_calls * usual.processor_s
        foreign_s = self._foreign(script, beyond_s, worked_s)
        self._foreign_s += foreign_s
        self._num_foreign += foreign_s > 0
        if foreign_s == beyond_s:
          continue
        beyond_s -= foreign_s
      self._variance_s2 += segment.num_calls * usual.deviation_s**2
      self._usual_error_s += segment.num_calls * usual.error_s
      if is_trial:
        self._trials_s[-1] += beyond_s
      else:
        self._beside_s += beyond_s

  def _foreign(
    self, script: script_lib.Script, beyond_s: float, worked_s: float
  ) -> float:
    """What of a slow block's time beyond the usual is not for tuning.

    Args:
      script: That the block is of.
      beyond_s: That time.
      worked_s: What the process took of cores in it beyond the usual.
    """
    if not (script.state in _WORKING and self._is_searched_here):
      return beyond_s
    return max(beyond_s - max(worked_s, 0.0), 0.0)

  def begin_trial(self) -> None:
    """Another proposal is tried from now on."""
    self._trials_s.append(0.0)

  def adopt(self) -> None:
    """What was tried last is in use: what it gained meanwhile is no credit."""
    self._trials_s[-1] = max(self._trials_s[-1], 0.0)


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
    self.overhead = Overhead(is_searched_here=lost_per_core > 0)
    self.usual: timing.Usual | None = None
    self._most_steps = most_steps
    self._lost_per_core = lost_per_core
    # Of the variant in use, over what jit runs.
    self._ratio = 1.0
    self._compile_s = 0.0

  @property
  def step_s(self) -> float:
    """What the step takes as jit runs it, in seconds; 0 before it is known."""
    return 0.0 if self.usual is None else self.usual.step_s / self._ratio

  def learn(self, baseline: timing.Baseline) -> None:
    """Takes a baseline; the first one shows what a compile takes, too."""
    if self.usual is None:
      self._compile_s = baseline.compile_s
    self.usual = baseline.usual

  def count(self, script: script_lib.Script, played: script_lib.Played) -> None:
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
    segments = timing.compose(
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
    num_calls = max(self.overhead.num_calls, RUN_CALLS)
    return self._most_steps * self.step_s * num_calls / RUN_CALLS

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
    run_calls = RUN_CALLS
    steps = (self.overhead.cost.seconds + next_s) / self.step_s
    least = math.ceil(run_calls * steps / self._most_steps)
    return least if least > max(self.overhead.num_calls, run_calls) else 0
