# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The loop that decides which variant of a step runs next.

    baseline -> profile -> search -> candidate -> measure -> adopt | reject
      ^                      ^                                      |
      |                      +--------------------------------------+
      +-- drift -- watch  <--- nothing left to propose -------------+
      +---------- wait  <----- it would cost too much --------------+

It is a generator of phases in the first process of a job, and is sent the times
of each phase. It does not depend on JAX: `Surroundings` is its interface to the
process.

Traces are always of the step as jit lowered it, even if a proposal is in use,
because proposals are compared with that. On GPUs a profiler cannot tell the
kernels in a CUDA graph apart. So all processes first compile a build without
graphs while training continues.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
import dataclasses
from typing import NoReturn, Protocol, TypeVar

from lagom_xla import errors
from lagom_xla.live import account
from lagom_xla.live import agreement
from lagom_xla.live import phases
from lagom_xla.live import proposals
from lagom_xla.live import timing
from lagom_xla.live import verdict as verdict_lib

_Result = TypeVar("_Result")
_Phases = Generator[phases.Phase, phases.Times, _Result]
_State = phases.State

# Warm-up calls of a candidate or a build for profiling: the first may create
# communicators or capture graphs.
_NUM_FIRST = 2
_NUM_TRACED = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
  """Limits of tuning.

  Attributes:
    search_s: Time for a search to find its next proposal, in seconds.
    compile_s: Time for all processes to compile a variant, in seconds.
    trace_s: Time to end and write a trace, in seconds.
    phase_s: Time that a process waits for the first process's phase, and for
      the others before it runs another variant, in seconds.
    reach_s: Time that a process tries to reach the others before it continues
      alone, in seconds.
    overhead_steps: Largest overhead per 1,000 steps, in baseline steps.
  """

  search_s: float = 3600.0
  compile_s: float = 1800.0
  trace_s: float = 60.0
  phase_s: float = 600.0
  reach_s: float = agreement.REACH_S
  overhead_steps: float = account.MOST_STEPS


class Surroundings(Protocol):
  """The loop's interface to its process."""

  @property
  def has_profile_build(self) -> bool:
    """Whether traces need a build for profiling."""

  @property
  def is_trace_ending(self) -> bool:
    """Whether the latest trace is still being written."""

  def now_s(self) -> float:
    """The time of a monotonic clock, in seconds."""

  def begin_search(self, step_s: float) -> None:
    """Starts a search, with the latest trace if it is complete."""

  def end_search(self) -> None:
    """Stops the search."""

  def found(self) -> proposals.Proposal | None:
    """The next proposal; None if there is none yet.

    Raises:
      StopIteration: The search is over; its value may be a reason.
    """

  def votes(self, number: int) -> Mapping[int, phases.Vote]:
    """The votes so far on a variant's compile, by process."""

  def note(self, trial: phases.Trial) -> None:
    """Records the result of a trial."""

  def conclude(self) -> None:
    """Records that all proposals of the search were tried."""


class Loop:
  """The loop of one signature of a step.

  Attributes:
    account: The step time, and the cost of tuning so far.
  """

  def __init__(
    self, around: Surroundings, members: Collection[int], limits: Limits
  ):
    self.account = account.Account(limits.overhead_steps)
    self._limits = limits
    self._around = around
    self._members = members
    self._in_use = 0
    self._num_proposals = 0
    self._num_profiles = 0
    # Payloads measured since the last drift.
    self._measured_payloads: set[bytes] = set()
    self._watch = timing.Watch()
    self._phases = self._run()
    self._latest: phases.Phase | None = None

  def next_phase(self, times: phases.Times) -> phases.Phase:
    """The next phase, given the times of the previous one.

    Raises the errors of its surroundings, or the reason to stop. After an
    error, there is no further phase.
    """
    if self._latest is None:
      self._latest = next(self._phases)
    else:
      self.account.count(self._latest, times)
      self._latest = self._phases.send(times)
    return self._latest

  def _run(self) -> _Phases[NoReturn]:
    words = ""
    while True:
      yield from self._baseline(words)
      words = f"a step takes {1e3 * self.account.step_s:.3g} ms"
      least_calls = self.account.calls_before_search()
      if least_calls:
        yield from self._wait(least_calls)
        words = "the run is long enough for a search"
        continue
      self.account.begin_search()
      yield from self._profile(words)
      words, is_over = yield from self._search()
      self._around.end_search()
      if is_over:
        words = yield from self._until_drift(words)
        self._measured_payloads.clear()
      else:
        self.account.break_off_search()

  def _baseline(self, words: str) -> _Phases[None]:
    """Measures the step without any trial."""
    first = [timing.block(self._in_use, it) for it in timing.FIRST_BLOCKS]
    times = yield self._phase(_State.BASELINE, *first, words=words)
    num_calls = first[-1].num_calls
    step_s = timing.of_blocks(_known(times)[1:], num_calls).step_s
    chunk = timing.chunk(self._in_use, step_s)
    times = yield self._phase(_State.BASELINE, *[chunk] * timing.NUM_BLOCKS)
    self.account.usual = timing.of_blocks(_known(times), chunk.num_calls)

  def _wait(self, least_calls: int) -> _Phases[None]:
    """Waits until the run is long enough for a profile."""
    step_s = self.account.step_s
    words = (
      f"until call {least_calls:,}: a search would cost about"
      f" {self.account.foreseen_s / step_s:,.0f} steps of {1e3 * step_s:.3g} ms"
    )
    while (left := least_calls - self.account.num_calls) > 0:
      window = timing.window(self._in_use, step_s, left)
      yield self._phase(_State.WAIT, window, words=words)
      words = ""

  def _profile(self, words: str) -> _Phases[None]:
    """Traces a few calls, and waits until the trace is written.

    Without a build for profiling, it traces jit's own build.
    """
    variant = 0
    if self._around.has_profile_build:
      self._num_profiles += 1
      objection, _ = yield from self._compiled(
        _State.PROFILE,
        -self._num_profiles,
        name="the build for profiling",
        words=words,
      )
      if objection is None:
        variant, words = -self._num_profiles, ""
      else:
        words = f"jit's own build, because {objection}"
    traced = timing.block(variant, _NUM_TRACED, is_traced=True)
    first = timing.block(variant, _NUM_FIRST)
    segments = (traced,) if variant == self._in_use else (first, traced)
    yield self._phase(_State.PROFILE, *segments, number=variant, words=words)
    until_s = self._around.now_s() + self._limits.trace_s
    while self._around.is_trace_ending and self._around.now_s() < until_s:
      # No number, so that the build for profiling is dropped.
      yield self._phase(_State.PROFILE, self._chunk())

  def _search(self) -> _Phases[tuple[str, bool]]:
    """Tries the proposals of a search.

    Returns why it stopped, and whether all proposals were tried.
    """
    self._around.begin_search(self.account.step_s)
    began_s = self._around.now_s()
    yield self._phase(_State.SEARCH, self._chunk())
    while (objection := self.account.objection()) is None:
      try:
        proposal = self._around.found()
      except StopIteration as end:
        self._around.conclude()
        return end.value or "nothing is left to try", True
      if proposal is not None:
        if proposal.payload not in self._measured_payloads:
          yield from self._try(proposal)
        began_s = self._around.now_s()
      elif self._around.now_s() - began_s < self._limits.search_s:
        yield self._phase(_State.SEARCH, self._chunk())
      else:
        raise errors.WorkerError(
          f"the search made no proposal within {self._limits.search_s:g} s."
        )
    return objection, False

  def _try(self, proposal: proposals.Proposal) -> _Phases[None]:
    """Compiles and measures a proposal, and adopts it if it is faster."""
    self._num_proposals += 1
    number = self._num_proposals
    self.account.begin_trial()
    words, is_late = yield from self._compiled(
      _State.CANDIDATE,
      number,
      name=proposal.name,
      proposal=proposal,
      words=proposal.name,
    )
    verdict = None
    if words is None:
      verdict = yield from self._measured(number)
      words = verdict.words
      self._measured_payloads.add(proposal.payload)
    trial = phases.Trial(
      proposal=proposal,
      number=number,
      rival=self._in_use,
      verdict=verdict,
      words=words,
    )
    self._around.note(trial)
    if is_late:  # That process may also hang with other proposals.
      raise errors.ProcessesError(words)
    state = _State.REJECT
    if verdict is not None and trial.is_adopted:
      state = _State.ADOPT
      self._in_use = number
      self.account.adopt(verdict)
    segment = phases.Segment(variant=self._in_use, num_calls=1)
    yield self._phase(state, segment, words=f"{proposal.name}: {words}")

  def _compiled(
    self,
    state: phases.State,
    number: int,
    *,
    name: str,
    proposal: proposals.Proposal | None = None,
    words: str,
  ) -> _Phases[tuple[str | None, bool]]:
    """Compiles a variant in all processes while training continues.

    Returns why it must not run (None if all processes got the same
    collectives), and whether some processes did not vote in time.
    """
    until_s = self._around.now_s() + self._limits.compile_s
    while True:
      yield self._phase(
        state, self._chunk(), number=number, proposal=proposal, words=words
      )
      proposal, words = None, ""
      votes = self._around.votes(number)
      for member, vote in sorted(votes.items()):
        if vote.digest is None:
          return f"{agreement.in_words([member])}: {vote.words}", False
      missing = [member for member in self._members if member not in votes]
      if not missing:
        digests = {member: vote.digest for member, vote in votes.items()}
        return agreement.all_equal(digests), False
      if self._around.now_s() >= until_s:
        objection = (
          f"{agreement.in_words(missing)} did not compile {name} within"
          f" {self._limits.compile_s:g} s."
        )
        return objection, True

  def _measured(self, number: int) -> _Phases[verdict_lib.Verdict]:
    """Measures a candidate in blocks that alternate with the variant in use."""
    # In a phase of its own, so that the next run knows whether the first call
    # ended this run.
    yield self._phase(
      _State.MEASURE,
      timing.block(number, _NUM_FIRST),
      number=number,
      words="all processes have compiled it",
    )
    pairs: list[tuple[float, float]] = []
    while True:
      blocks = timing.blocks_in_turns(
        self._in_use,
        number,
        step_s=self.account.step_s,
        num_before=len(pairs),
        num_pairs=verdict_lib.num_pairs_to_next_look(len(pairs)),
      )
      times = yield self._phase(_State.MEASURE, *blocks, number=number)
      pairs += timing.pairs(blocks, times.durations_s, self._in_use)
      verdict = verdict_lib.judge(pairs)
      if verdict.is_adopted is not None:
        return verdict
      objection = self.account.objection()
      if objection is not None and verdict.ratio >= 1:  # Faster costs nothing.
        words = f"{verdict.words}; stopped early: {objection}"
        return dataclasses.replace(verdict, is_adopted=False, words=words)

  def _until_drift(self, words: str) -> _Phases[str]:
    """Watches the step until its time drifts; returns the drift in words."""
    while True:
      window = timing.window(self._in_use, self.account.step_s)
      times = yield self._phase(_State.WATCH, window, words=words)
      words = ""
      (seconds,) = _known(times)
      step_s = seconds / window.num_calls
      if self._watch.has_drifted(step_s):
        words = self._watch.in_words(step_s)
        self._watch.restart()
        return words

  def _chunk(self) -> phases.Segment:
    """Calls of the variant in use while a search or compile runs."""
    return timing.chunk(self._in_use, self.account.step_s)

  def _phase(
    self,
    state: phases.State,
    *segments: phases.Segment,
    number: int = 0,
    proposal: proposals.Proposal | None = None,
    words: str = "",
  ) -> phases.Phase:
    return phases.Phase(
      state=state,
      segments=segments,
      in_use=self._in_use,
      number=number,
      proposal=proposal,
      words=words,
    )


def _known(times: phases.Times) -> list[float]:
  """The durations of the timed segments."""
  return [it for it in times.durations_s if it is not None]
