# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ballot on an executable: whether all processes compiled the same, in time."""

from __future__ import annotations

from collections.abc import Collection
import dataclasses

from lagom_xla.live.job import agreement
from lagom_xla.live.loop import surroundings


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

  def result(self, around: surroundings.Surroundings) -> Result | None:
    """What came of it; None while votes are missing."""
    votes = around.votes(self.number)
    for member, vote in sorted(votes.items()):
      if vote.digest is None:
        words = f"{agreement.in_words([member])}: {vote.words}"
        return Result(objection=words)
    missing = [member for member in self.members if member not in votes]
    if not missing:
      digests = {member: vote.digest or b"" for member, vote in votes.items()}
      return Result(objection=agreement.all_equal(digests))
    if around.now_s() < self.deadline_s:
      return None
    words = (
      f"{agreement.in_words(missing)} did not compile {self.name} within"
      f" {self.limit_s:g} s."
    )
    return Result(objection=words, is_late=True)


def opened(
  around: surroundings.Surroundings,
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
