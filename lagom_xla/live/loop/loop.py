# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Loop that decides what a step runs next: baseline, proposals, what is kept.

    baseline -> profile -> search -> candidate -> measure -> adopt | reject
                   ^         ^                                      |
                   |         +--------------------------------------+
                   +-- drift -- watch  <-- nothing left to propose --+

It runs in the first process of a job whenever a script has been played out, and
composes the next one from what is known by then. It knows nothing of JAX: what
it asks for is in `surroundings.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
import dataclasses

from lagom_xla.live import script as script_lib
from lagom_xla.live.loop import baseline
from lagom_xla.live.loop import blocks
from lagom_xla.live.loop import candidate as candidate_lib
from lagom_xla.live.loop import overhead as overhead_lib
from lagom_xla.live.loop import profiling
from lagom_xla.live.loop import surroundings
from lagom_xla.live.loop import watch as watch_lib

_State = script_lib.State
_Segment = script_lib.Segment

# What a trace costs a run until it is read: 73 to 110 ms, by wall clock beside
# plain jit, of steps of 1.4 to 5 ms on eight XLA:CPU devices with two cores.
_TRACE_S = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
  """What the loop may take.

  Attributes:
    search_s: Seconds until a search has to come to its next proposal.
    compile_s: Seconds until all processes must have compiled one.
    trace_s: Seconds until a trace must have been ended and written.
    overhead_steps: Overhead beyond which nothing more is proposed, in steps of
      the baseline.
  """

  search_s: float = 3600.0
  compile_s: float = 1800.0
  trace_s: float = 60.0
  overhead_steps: float = overhead_lib.MOST_STEPS


class Loop:
  """The loop of one signature of a step.

  Attributes:
    step_s: Median time of the baseline, in seconds; 0 before it is known.
    overhead: What the loop has taken from the run so far.
  """

  def __init__(
    self,
    around: surroundings.Surroundings,
    members: Collection[int],
    limits: Limits | None = None,
  ):
    self._limits = limits or Limits()
    self.step_s = 0.0
    self._spread_s = 0.0
    # Of the variant in use, over the baseline.
    self._ratio = 1.0
    self.overhead = overhead_lib.Overhead(self._limits.overhead_steps)
    self._around = around
    self._members = members
    self._in_use = 0
    self._number = 0
    self._candidate: candidate_lib.Candidate | None = None
    self._num_profiles = 0
    self._profile: profiling.Profile | None = None
    self._watch = watch_lib.Watch()
    self._search_began_s = 0.0
    self._latest: script_lib.Script | None = None

  def next_script(self, played: surroundings.Played) -> script_lib.Script:
    """The next script, after the one that was returned last was played.

    Raises:
      Exception: Whatever the surroundings raise; then nothing can be decided.
    """
    latest = self._latest
    if latest is None:
      self._latest = baseline.script()
    else:
      if self.step_s:
        usual_s = self.step_s * self._ratio
        self.overhead.count(latest, played, usual_s, self._spread_s)
      self._latest = self._after(latest, played)
    return self._latest

  def _after(
    self, latest: script_lib.Script, played: surroundings.Played
  ) -> script_lib.Script:
    match latest.state:
      case _State.BASELINE:
        blocks_s = _known(played.durations_s)
        self.step_s, self._spread_s = baseline.step_s(blocks_s)
        words = f"a step takes {1e3 * self.step_s:.3g} ms"
        if self.step_s * self._limits.overhead_steps < _TRACE_S:
          return self._end(f"{words}, too little for a trace to be worth it")
        return self._profiling(words)
      case _State.PROFILE:
        return self._profiled()
      case _State.CANDIDATE | _State.MEASURE:
        return self._try_on(latest, played)
      case _State.WATCH:
        return self._watched(latest, played)
      case _State.STAY:
        return latest
      case _:
        return self._search()

  def _profiling(self, words: str) -> script_lib.Script:
    self._num_profiles += 1
    self._profile = profiling.Profile(
      number=-self._num_profiles,
      in_use=self._in_use,
      step_s=self.step_s,
      compile_s=self._limits.compile_s,
      trace_s=self._limits.trace_s,
      members=self._members,
    )
    return self._profile.begin(self._around, words)

  def _profiled(self) -> script_lib.Script:
    assert self._profile is not None
    script = self._profile.next(self._around)
    if script is not None:
      return script
    self._around.begin_search(self.step_s)
    self._search_began_s = self._around.now_s()
    return self._searching()

  def _searching(self) -> script_lib.Script:
    chunk = blocks.chunk(self._in_use, self.step_s)
    return self._script(_State.SEARCH, chunk)

  def _search(self) -> script_lib.Script:
    objection = self.overhead.objection(self.step_s)
    if objection is not None:
      self._around.conclude(has_tried_all=False)
      return self._end(objection)
    try:
      proposal = self._around.found()
    except StopIteration as end:
      self._around.conclude(has_tried_all=True)
      return self._end(end.value or "nothing is left to try")
    if proposal is not None:
      self._number += 1
      self.overhead.begin_trial()
      self._candidate = candidate_lib.Candidate(
        proposal=proposal,
        number=self._number,
        rival=self._in_use,
        step_s=self.step_s,
        compile_s=self._limits.compile_s,
        members=self._members,
      )
      return self._candidate.begin(self._around)
    waited_s = self._around.now_s() - self._search_began_s
    if waited_s < self._limits.search_s:
      return self._searching()
    return self._stay(
      f"no proposal came within {self._limits.search_s:g} s of searching."
    )

  def _try_on(
    self, latest: script_lib.Script, played: surroundings.Played
  ) -> script_lib.Script:
    candidate = self._candidate
    assert candidate is not None
    objection = self.overhead.objection(self.step_s)
    outcome = candidate.next(self._around, latest, played, objection)
    if isinstance(outcome, script_lib.Script):
      return outcome
    self._around.note(
      surroundings.Trial(
        proposal=candidate.proposal,
        number=candidate.number,
        rival=candidate.rival,
        verdict=outcome.verdict,
        words=outcome.words,
      )
    )
    self._search_began_s = self._around.now_s()
    if outcome.is_last:
      return self._stay(outcome.words)
    state = _State.REJECT
    if outcome.verdict is not None and outcome.verdict.is_adopted:
      state = _State.ADOPT
      self._in_use = candidate.number
      self._ratio *= outcome.verdict.ratio
    return self._script(
      state,
      _Segment(variant=self._in_use, num_calls=1),
      f"{candidate.proposal.name}: {outcome.words}",
    )

  def _watched(
    self, latest: script_lib.Script, played: surroundings.Played
  ) -> script_lib.Script:
    (seconds,) = _known(played.durations_s)
    step_s = seconds / latest.segments[0].num_calls
    if not self._watch.has_drifted(step_s):
      return self._watching()
    words = (
      f"a step takes {1e3 * step_s:.3g} ms for long now, where it took"
      f" {1e3 * self._watch.usual_s:.3g} ms"
    )
    self._watch.restart()
    self.overhead.restart()
    self.step_s = step_s / self._ratio
    return self._profiling(words)

  def _watching(self, words: str = "") -> script_lib.Script:
    calls = watch_lib.window_calls(self.step_s)
    window = _Segment(variant=self._in_use, num_calls=calls, is_watched=True)
    return self._script(_State.WATCH, window, words)

  def _end(self, words: str) -> script_lib.Script:
    """Ends the search, and watches from now on."""
    self._around.end_search()
    return self._watching(words)

  def _stay(self, words: str) -> script_lib.Script:
    self._around.end_search()
    return script_lib.stay(self._in_use, words)

  def _script(
    self, state: script_lib.State, segment: script_lib.Segment, words: str = ""
  ) -> script_lib.Script:
    return script_lib.Script(
      state=state, segments=(segment,), in_use=self._in_use, words=words
    )


def _known(durations_s: Sequence[float | None]) -> list[float]:
  return [it for it in durations_s if it is not None]
