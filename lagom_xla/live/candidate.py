# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Candidate on its way from a proposal to a verdict, and the profile before it.

All processes compile a candidate and vote on it; it is measured if all came to
the same collectives.

Of a profile a few calls are traced. What is traced is always the step as jit
lowered it, also where a proposal is in use: its times are what proposals are
compared with. On GPUs XLA replays kernels in graphs, in which a profiler cannot
tell them apart. A build without graphs is compiled beside the run first, by all
processes or for none. While the trace is ended and written, beside training,
the step goes on that is in use.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
import dataclasses

from lagom_xla.live import agreement
from lagom_xla.live import job_store
from lagom_xla.live import proposals
from lagom_xla.live import script
from lagom_xla.live import script as script_lib
from lagom_xla.live import timing
from lagom_xla.live import verdict as verdict_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
  """What came of a ballot.

  Attributes:
    objection: Why the executable must not run; None if all came to the same.
    is_late: Whether a process has not voted in time, as it may hang.
  """

  objection: str | None = None
  is_late: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ballot:
  """A question to all processes of a job.

  Attributes:
    number: Of the variant.
    name: Of it, in words.
    members: The processes.
    limit_s: Seconds in which they must have compiled it.
    deadline_s: When that is, by the clock of the surroundings.
  """

  number: int
  name: str
  members: Collection[int]
  limit_s: float
  deadline_s: float

  def result(self, around: script.Surroundings) -> Result | None:
    """What came of it; None while votes are missing."""
    votes = around.votes(self.number)
    for member, vote in sorted(votes.items()):
      if vote.digest is None:
        words = f"{job_store.in_words([member])}: {vote.words}"
        return Result(objection=words)
    missing = [member for member in self.members if member not in votes]
    if not missing:
      digests = {member: vote.digest or b"" for member, vote in votes.items()}
      return Result(objection=agreement.all_equal(digests))
    if around.now_s() < self.deadline_s:
      return None
    words = (
      f"{job_store.in_words(missing)} did not compile {self.name} within"
      f" {self.limit_s:g} s."
    )
    return Result(objection=words, is_late=True)


def opened(
  around: script.Surroundings,
  *,
  number: int,
  name: str,
  members: Collection[int],
  limit_s: float,
) -> Ballot:
  """A ballot from now on."""
  return Ballot(
    number=number,
    name=name,
    members=members,
    limit_s=limit_s,
    deadline_s=around.now_s() + limit_s,
  )


# Calls of a candidate that no pair has: it may make communicators or capture
# graphs at its first.
NUM_FIRST = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
  """What came of a candidate.

  Attributes:
    verdict: On its speed; None if it did not come to be measured.
    words: What came of it.
    is_last: Whether nothing more should be tried, as a process hangs.
  """

  verdict: verdict_lib.Verdict | None
  words: str
  is_last: bool = False


@dataclasses.dataclass(kw_only=True)
class Candidate:
  """A proposal that is tried.

  Attributes:
    proposal: The proposal.
    number: Of the proposal, and of its variant.
    rival: The variant in use.
    step_s: What a step takes, in seconds.
    compile_s: Until when all processes must have compiled it.
    members: The processes.
  """

  proposal: proposals.Proposal
  number: int
  rival: int
  step_s: float
  compile_s: float
  members: Collection[int]
  _ballot: Ballot | None = None
  _pairs: list[tuple[float, float]] = dataclasses.field(default_factory=list)

  def begin(self, around: script_lib.Surroundings) -> script_lib.Script:
    """The script that has all processes compile it, while the step goes on."""
    self._ballot = opened(
      around,
      number=self.number,
      name=self.proposal.name,
      members=self.members,
      limit_s=self.compile_s,
    )
    return self._waiting(self.proposal, self.proposal.name)

  def next(
    self,
    around: script_lib.Surroundings,
    latest: script_lib.Script,
    played: script_lib.Played,
    objection: str | None,
  ) -> script_lib.Script | Outcome:
    """What follows one of this candidate's scripts.

    Args:
      around: What it asks.
      latest: The script.
      played: What it took.
      objection: Why no more should be measured; None if more may be.
    """
    if latest.state is script_lib.State.CANDIDATE:
      return self._compiled(around)
    # Its first calls stand before its first blocks.
    num_first = len(latest.segments) % 2
    self._pairs += timing.pairs(
      latest.segments[num_first:], played.durations_s[num_first:], self.rival
    )
    verdict = verdict_lib.judge(self._pairs)
    if verdict.is_adopted is None:
      if objection is None or verdict.ratio < 1:  # Faster ones cost nothing.
        return self._measuring()
      words = f"{verdict.words}, and no more: {objection}"
      verdict = dataclasses.replace(verdict, is_adopted=False, words=words)
    return Outcome(verdict=verdict, words=verdict.words)

  def trial(self, outcome: Outcome) -> script_lib.Trial:
    """What is told of it, once something came of it."""
    return script_lib.Trial(
      proposal=self.proposal,
      number=self.number,
      rival=self.rival,
      verdict=outcome.verdict,
      words=outcome.words,
    )

  def _compiled(
    self, around: script_lib.Surroundings
  ) -> script_lib.Script | Outcome:
    assert self._ballot is not None
    result = self._ballot.result(around)
    if result is None:
      return self._waiting()
    if result.objection is not None:
      return Outcome(
        verdict=None, words=result.objection, is_last=result.is_late
      )
    first = script_lib.Segment(
      variant=self.number, num_calls=NUM_FIRST, is_timed=True
    )
    return self._measuring([first], "all processes have compiled it")

  def _waiting(
    self, proposal: proposals.Proposal | None = None, words: str = ""
  ) -> script_lib.Script:
    return script_lib.Script(
      state=script_lib.State.CANDIDATE,
      segments=(timing.chunk(self.rival, self.step_s),),
      in_use=self.rival,
      number=self.number,
      proposal=proposal,
      words=words,
    )

  def _measuring(
    self, first: Sequence[script_lib.Segment] = (), words: str = ""
  ) -> script_lib.Script:
    num_before = len(self._pairs)
    segments = timing.compose(
      self.rival,
      self.number,
      step_s=self.step_s,
      num_before=num_before,
      num_pairs=verdict_lib.num_pairs_to_next_look(num_before),
    )
    return script_lib.Script(
      state=script_lib.State.MEASURE,
      segments=(*first, *segments),
      in_use=self.rival,
      number=self.number,
      words=words,
    )


NUM_TRACED = 3
# Calls of a build of its own before the trace: it makes communicators, too.
_NUM_FIRST = 2
_NAME = "the build for the profile"


@dataclasses.dataclass(kw_only=True)
class Profile:
  """One profile of a step.

  Attributes:
    number: Of the variant that is built for it; negative.
    in_use: The variant that runs meanwhile.
    step_s: What a step takes, in seconds.
    compile_s: Until when all processes must have compiled the build.
    trace_s: Seconds in which a trace must be ended and written.
    members: The processes.
  """

  number: int
  in_use: int
  step_s: float
  compile_s: float
  trace_s: float
  members: Collection[int]
  _ballot: Ballot | None = None
  _is_traced: bool = False
  _given_up_s: float | None = None

  def begin(
    self, around: script_lib.Surroundings, words: str
  ) -> script_lib.Script:
    """The first script, for a reason in words."""
    if not around.has_profile_build:
      return self._traced(0, words)
    self._ballot = opened(
      around,
      number=self.number,
      name=_NAME,
      members=self.members,
      limit_s=self.compile_s,
    )
    return self._waiting(self.number, words)

  def next(self, around: script_lib.Surroundings) -> script_lib.Script | None:
    """The next script; None once the trace is written, or should have been."""
    if self._is_traced:
      return self._ending(around)
    assert self._ballot is not None
    result = self._ballot.result(around)
    if result is None:
      return self._waiting(self.number)
    if result.objection is None:
      return self._traced(self.number)
    return self._traced(0, f"of the step as jit runs it: {result.objection}")

  def _ending(
    self, around: script_lib.Surroundings
  ) -> script_lib.Script | None:
    if self._given_up_s is None:
      self._given_up_s = around.now_s() + self.trace_s
    if around.is_trace_ending and around.now_s() < self._given_up_s:
      return self._waiting(0)  # What was built for the trace is let go of.
    return None

  def _waiting(self, number: int, words: str = "") -> script_lib.Script:
    chunk = timing.chunk(self.in_use, self.step_s)
    return self._script(number, (chunk,), words)

  def _traced(self, variant: int, words: str = "") -> script_lib.Script:
    self._is_traced = True
    traced = script_lib.Segment(
      variant=variant, num_calls=NUM_TRACED, is_timed=True, is_traced=True
    )
    if variant == self.in_use:
      return self._script(variant, (traced,), words)
    first = script_lib.Segment(
      variant=variant, num_calls=_NUM_FIRST, is_timed=True
    )
    return self._script(variant, (first, traced), words)

  def _script(
    self,
    number: int,
    segments: tuple[script_lib.Segment, ...],
    words: str,
  ) -> script_lib.Script:
    return script_lib.Script(
      state=script_lib.State.PROFILE,
      segments=segments,
      in_use=self.in_use,
      number=number,
      words=words,
    )
