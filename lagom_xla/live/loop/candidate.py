# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Candidate on its way from a proposal to a verdict: compiled, then measured.

All processes compile it; it is measured if all came to the same collectives.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
import dataclasses

from lagom_xla.live import proposals
from lagom_xla.live import script as script_lib
from lagom_xla.live.loop import ballot as ballot_lib
from lagom_xla.live.loop import blocks
from lagom_xla.live.loop import surroundings
from lagom_xla.live.loop import verdict as verdict_lib

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
  _ballot: ballot_lib.Ballot | None = None
  _pairs: list[tuple[float, float]] = dataclasses.field(default_factory=list)

  def begin(self, around: surroundings.Surroundings) -> script_lib.Script:
    """The script that has all processes compile it, while the step goes on."""
    self._ballot = ballot_lib.opened(
      around,
      number=self.number,
      name=self.proposal.name,
      members=self.members,
      limit_s=self.compile_s,
    )
    return self._waiting(self.proposal, self.proposal.name)

  def next(
    self,
    around: surroundings.Surroundings,
    latest: script_lib.Script,
    played: surroundings.Played,
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
    self._pairs += blocks.pairs(
      latest.segments[num_first:], played.durations_s[num_first:], self.rival
    )
    verdict = verdict_lib.judge(self._pairs)
    if verdict.is_adopted is None:
      if objection is None or verdict.ratio < 1:  # Faster ones cost nothing.
        return self._measuring()
      words = f"{verdict.words}, and no more: {objection}"
      verdict = dataclasses.replace(verdict, is_adopted=False, words=words)
    return Outcome(verdict=verdict, words=verdict.words)

  def trial(self, outcome: Outcome) -> surroundings.Trial:
    """What is told of it, once something came of it."""
    return surroundings.Trial(
      proposal=self.proposal,
      number=self.number,
      rival=self.rival,
      verdict=outcome.verdict,
      words=outcome.words,
    )

  def _compiled(
    self, around: surroundings.Surroundings
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
      segments=(blocks.chunk(self.rival, self.step_s),),
      in_use=self.rival,
      number=self.number,
      proposal=proposal,
      words=words,
    )

  def _measuring(
    self, first: Sequence[script_lib.Segment] = (), words: str = ""
  ) -> script_lib.Script:
    num_before = len(self._pairs)
    segments = blocks.compose(
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
