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
from lagom_xla.live import proposals
from lagom_xla.live import script as script_lib
from lagom_xla.live import timing
from lagom_xla.live import verdict as verdict_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Result:
  """What came of a ballot.

  Attributes:
    objection: Why the executable must not run; None if all came to the same.
    is_late: Whether a process has not voted in time, as it may hang.
  """

  objection: str | None = None
  is_late: bool = False


class _Ballot:
  """Whether all processes compile a variant, alike, within a time from now."""

  def __init__(
    self,
    around: script_lib.Surroundings,
    *,
    number: int,
    name: str,
    members: Collection[int],
    limit_s: float,
  ):
    self._around = around
    self._number = number
    self._name = name
    self._members = members
    self._limit_s = limit_s
    self._deadline_s = around.now_s() + limit_s

  def result(self) -> _Result | None:
    """What came of it; None while votes are missing."""
    votes = self._around.votes(self._number)
    for member, vote in sorted(votes.items()):
      if vote.digest is None:
        words = f"{agreement.in_words([member])}: {vote.words}"
        return _Result(objection=words)
    missing = [member for member in self._members if member not in votes]
    if not missing:
      digests = {member: vote.digest or b"" for member, vote in votes.items()}
      return _Result(objection=agreement.all_equal(digests))
    if self._around.now_s() < self._deadline_s:
      return None
    words = (
      f"{agreement.in_words(missing)} did not compile {self._name} within"
      f" {self._limit_s:g} s."
    )
    return _Result(objection=words, is_late=True)


# Calls of a candidate that no pair has: it may make communicators or capture
# graphs at its first. So may a build of its own before the trace.
_NUM_FIRST = 2


def _first(variant: int) -> script_lib.Segment:
  return script_lib.Segment(
    variant=variant, num_calls=_NUM_FIRST, is_timed=True
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
  """What came of a candidate.

  Attributes:
    trial: The same, as it is told.
    is_last: Whether nothing more should be tried, as a process hangs.
  """

  trial: script_lib.Trial
  is_last: bool = False


class Candidate:
  """A proposal that is tried: variant `number` beside the one in use."""

  def __init__(
    self,
    around: script_lib.Surroundings,
    *,
    proposal: proposals.Proposal,
    number: int,
    rival: int,
    step_s: float,
    compile_s: float,
    members: Collection[int],
  ):
    self._proposal = proposal
    self._number = number
    self._rival = rival
    self._step_s = step_s
    self._ballot = _Ballot(
      around,
      number=number,
      name=proposal.name,
      members=members,
      limit_s=compile_s,
    )
    self._pairs: list[tuple[float, float]] = []

  def begin(self) -> script_lib.Script:
    """The script that has all processes compile it, while the step goes on."""
    return self._waiting(self._proposal, self._proposal.name)

  def next(
    self,
    latest: script_lib.Script,
    played: script_lib.Played,
    objection: str | None,
  ) -> script_lib.Script | Outcome:
    """What follows one of this candidate's scripts.

    Args:
      latest: The script.
      played: What it took.
      objection: Why no more should be measured; None if more may be.
    """
    if latest.state is script_lib.State.CANDIDATE:
      return self._compiled()
    # Its first calls stand before its first blocks.
    num_first = len(latest.segments) % 2
    self._pairs += timing.pairs(
      latest.segments[num_first:], played.durations_s[num_first:], self._rival
    )
    verdict = verdict_lib.judge(self._pairs)
    if verdict.is_adopted is None:
      if objection is None or verdict.ratio < 1:  # Faster ones cost nothing.
        return self._measuring()
      words = f"{verdict.words}, and no more: {objection}"
      verdict = dataclasses.replace(verdict, is_adopted=False, words=words)
    return Outcome(trial=self._trial(verdict, verdict.words))

  def _trial(
    self, verdict: verdict_lib.Verdict | None, words: str
  ) -> script_lib.Trial:
    return script_lib.Trial(
      proposal=self._proposal,
      number=self._number,
      rival=self._rival,
      verdict=verdict,
      words=words,
    )

  def _compiled(self) -> script_lib.Script | Outcome:
    result = self._ballot.result()
    if result is None:
      return self._waiting()
    if result.objection is not None:
      trial = self._trial(None, result.objection)
      return Outcome(trial=trial, is_last=result.is_late)
    first = _first(self._number)
    return self._measuring([first], "all processes have compiled it")

  def _waiting(
    self, proposal: proposals.Proposal | None = None, words: str = ""
  ) -> script_lib.Script:
    return script_lib.Script(
      state=script_lib.State.CANDIDATE,
      segments=(timing.chunk(self._rival, self._step_s),),
      in_use=self._rival,
      number=self._number,
      proposal=proposal,
      words=words,
    )

  def _measuring(
    self, first: Sequence[script_lib.Segment] = (), words: str = ""
  ) -> script_lib.Script:
    num_before = len(self._pairs)
    segments = timing.compose(
      self._rival,
      self._number,
      step_s=self._step_s,
      num_before=num_before,
      num_pairs=verdict_lib.num_pairs_to_next_look(num_before),
    )
    return script_lib.Script(
      state=script_lib.State.MEASURE,
      segments=(*first, *segments),
      in_use=self._rival,
      number=self._number,
      words=words,
    )


_NUM_TRACED = 3


class Profile:
  """One profile of a step, of a build that is variant `number` (negative)."""

  def __init__(
    self,
    around: script_lib.Surroundings,
    *,
    number: int,
    in_use: int,
    step_s: float,
    compile_s: float,
    trace_s: float,
    members: Collection[int],
  ):
    self._around = around
    self._number = number
    self._in_use = in_use
    self._step_s = step_s
    self._trace_s = trace_s
    self._ballot = _Ballot(
      around,
      number=number,
      name="the build for the profile",
      members=members,
      limit_s=compile_s,
    )
    self._is_traced = False
    self._given_up_s: float | None = None

  def begin(self, words: str) -> script_lib.Script:
    """The first script, for a reason in words."""
    if self._around.has_profile_build:
      return self._waiting(self._number, words)
    return self._traced(0, words)

  def next(self) -> script_lib.Script | None:
    """The next script; None once the trace is written, or should have been."""
    if self._is_traced:
      return self._ending()
    result = self._ballot.result()
    if result is None:
      return self._waiting(self._number)
    if result.objection is None:
      return self._traced(self._number)
    return self._traced(0, f"of the step as jit runs it: {result.objection}")

  def _ending(self) -> script_lib.Script | None:
    now_s = self._around.now_s()
    if self._given_up_s is None:
      self._given_up_s = now_s + self._trace_s
    if self._around.is_trace_ending and now_s < self._given_up_s:
      return self._waiting(0)  # What was built for the trace is let go of.
    return None

  def _waiting(self, number: int, words: str = "") -> script_lib.Script:
    chunk = timing.chunk(self._in_use, self._step_s)
    return self._script(number, (chunk,), words)

  def _traced(self, variant: int, words: str = "") -> script_lib.Script:
    self._is_traced = True
    traced = script_lib.Segment(
      variant=variant, num_calls=_NUM_TRACED, is_timed=True, is_traced=True
    )
    if variant == self._in_use:
      return self._script(variant, (traced,), words)
    return self._script(variant, (_first(variant), traced), words)

  def _script(
    self, number: int, segments: tuple[script_lib.Segment, ...], words: str
  ) -> script_lib.Script:
    return script_lib.Script(
      state=script_lib.State.PROFILE,
      segments=segments,
      in_use=self._in_use,
      number=number,
      words=words,
    )
