# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Loop that decides what a step runs next: baseline, proposals, what is kept.

    baseline -> profile -> search -> candidate -> measure -> adopt | reject
      ^                      ^                                      |
      |                      +--------------------------------------+
      +-- drift, wait -- watch  <-- nothing left to propose --------+

It composes the next script in the first process of a job, once one was played.
It knows nothing of JAX: what it asks for is in `script.Surroundings`.
"""

from __future__ import annotations

from collections.abc import Collection
import dataclasses

from lagom_xla.live import account
from lagom_xla.live import agreement
from lagom_xla.live import candidate as candidate_lib
from lagom_xla.live import script as script_lib
from lagom_xla.live import timing

_State = script_lib.State


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
  """What tuning may take.

  Attributes:
    search_s: Seconds until a search has to come to its next proposal.
    compile_s: Seconds until all processes must have compiled one.
    trace_s: Seconds until a trace must have been ended and written.
    script_s: Seconds that a process waits for the first one's script, and all
      wait for each other before they run anything else. It comes, and they do,
      as soon as all are as far in the run.
    reach_s: Seconds in which a process that cannot reach the others tries to,
      before it goes on alone.
    overhead_steps: Overhead of a run of 1,000 steps beyond which nothing more
      is tried, in steps of the baseline. A longer run may have more.
  """

  search_s: float = 3600.0
  compile_s: float = 1800.0
  trace_s: float = 60.0
  script_s: float = 600.0
  reach_s: float = agreement.REACH_S
  overhead_steps: float = account.MOST_STEPS


class Loop:
  """The loop of one signature of a step.

  Attributes:
    account: What a step takes, and what the loop has taken from the run.
  """

  def __init__(
    self,
    around: script_lib.Surroundings,
    members: Collection[int],
    limits: Limits,
  ):
    self.account = account.Account(limits.overhead_steps)
    self._limits = limits
    self._around = around
    self._members = members
    self._in_use = 0
    self._least_calls = 0
    self._number = 0
    self._candidate: candidate_lib.Candidate | None = None
    self._baseline = timing.Baseline(in_use=0)
    self._num_profiles = 0
    self._profile: candidate_lib.Profile | None = None
    self._watch = timing.Watch()
    self._search_began_s = 0.0
    self._latest: script_lib.Script | None = None

  def next_script(self, played: script_lib.Played) -> script_lib.Script:
    """The next script, after the one that was returned last was played.

    Raises:
      Exception: Whatever the surroundings raise; then nothing can be decided.
    """
    if self._latest is None:
      self._latest = self._baseline.begin()
    else:
      self.account.count(self._latest, played)
      self._latest = self._after(self._latest, played)
    return self._latest

  def _after(
    self, latest: script_lib.Script, played: script_lib.Played
  ) -> script_lib.Script:
    match latest.state:
      case _State.BASELINE:
        return self._baseline.next(played) or self._begin_or_wait()
      case _State.PROFILE:
        return self._profiled()
      case _State.CANDIDATE | _State.MEASURE:
        return self._try_on(latest, played)
      case _State.WATCH:
        return self._watched(latest, played)
      case _State.WAIT:
        return self._waiting()
      case _State.STAY:
        return latest
      case _:
        return self._search()

  def _begin_or_wait(self) -> script_lib.Script:
    """A profile, once the run is so long that it can pay for one."""
    self.account.usual = self._baseline.usual
    step_s = self.account.step_s
    words = f"a step takes {1e3 * step_s:.3g} ms"
    self._least_calls = self.account.calls_before_profile()
    if self._least_calls:
      steps = account.TRACE_S / step_s
      words += f", and to search might cost {steps:,.0f} of them"
      words += f", too much before call {self._least_calls:,}"
      return self._waiting(words)
    self._num_profiles += 1
    self._profile = candidate_lib.Profile(
      self._around,
      number=-self._num_profiles,
      in_use=self._in_use,
      step_s=step_s,
      compile_s=self._limits.compile_s,
      trace_s=self._limits.trace_s,
      members=self._members,
    )
    return self._profile.begin(words)

  def _profiled(self) -> script_lib.Script:
    assert self._profile is not None
    script = self._profile.next()
    if script is not None:
      return script
    self._around.begin_search(self.account.step_s)
    self._search_began_s = self._around.now_s()
    return self._searching()

  def _searching(self) -> script_lib.Script:
    chunk = timing.chunk(self._in_use, self.account.step_s)
    return self._script(_State.SEARCH, chunk)

  def _search(self) -> script_lib.Script:
    objection = self.account.objection()
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
      self.account.begin_trial()
      self._candidate = candidate_lib.Candidate(
        self._around,
        proposal=proposal,
        number=self._number,
        rival=self._in_use,
        step_s=self.account.step_s,
        compile_s=self._limits.compile_s,
        members=self._members,
      )
      return self._candidate.begin()
    waited_s = self._around.now_s() - self._search_began_s
    if waited_s < self._limits.search_s:
      return self._searching()
    return self._stay(
      f"no proposal came within {self._limits.search_s:g} s of searching."
    )

  def _try_on(
    self, latest: script_lib.Script, played: script_lib.Played
  ) -> script_lib.Script:
    candidate = self._candidate
    assert candidate is not None
    outcome = candidate.next(latest, played, self.account.objection())
    if isinstance(outcome, script_lib.Script):
      return outcome
    trial = outcome.trial
    self._around.note(trial)
    self._search_began_s = self._around.now_s()
    if outcome.is_last:
      return self._stay(trial.words)
    state = _State.REJECT
    if trial.verdict is not None and trial.verdict.is_adopted:
      state = _State.ADOPT
      self._in_use = trial.number
      self.account.adopt(trial.verdict)
    return self._script(
      state,
      script_lib.Segment(variant=self._in_use, num_calls=1),
      f"{trial.proposal.name}: {trial.words}",
    )

  def _watched(
    self, latest: script_lib.Script, played: script_lib.Played
  ) -> script_lib.Script:
    (seconds,) = (it for it in played.durations_s if it is not None)
    step_s = seconds / latest.segments[0].num_calls
    if not self._watch.has_drifted(step_s):
      return self._watching()
    words = self._watch.in_words(step_s)
    self._watch.restart()
    return self._begin_anew(words)

  def _begin_anew(self, words: str) -> script_lib.Script:
    self._baseline = timing.Baseline(in_use=self._in_use)
    return self._baseline.begin(words)

  def _watching(self, words: str = "") -> script_lib.Script:
    window = timing.window(self._in_use, self.account.step_s)
    return self._script(_State.WATCH, window, words)

  def _waiting(self, words: str = "") -> script_lib.Script:
    left = self._least_calls - self.account.num_calls
    if left <= 0:
      return self._begin_anew("the run is long enough for a search")
    window = timing.window(self._in_use, self.account.step_s, left)
    return self._script(_State.WAIT, window, words)

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
