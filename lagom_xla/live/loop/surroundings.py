# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Surroundings of the loop: what it asks for, and what it is told.

The real ones are in `first_process.py`; tests have a simulated job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Protocol

from lagom_xla.live import proposals
from lagom_xla.live.loop import verdict as verdict_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vote:
  """What a process says of its compile of a proposal.

  Attributes:
    digest: What must be the same in all processes; None if it failed.
    words: Why it failed.
  """

  digest: bytes | None
  words: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Played:
  """A script that was played out.

  Attributes:
    durations_s: Of its segments in order; None of those that have none.
    processor_s: What all threads of the process took of cores meanwhile.
    stall_s: What scripts and traces had the calls wait.
  """

  durations_s: Sequence[float | None] = ()
  processor_s: Sequence[float] = ()
  stall_s: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
  """What came of a proposal.

  Attributes:
    proposal: The proposal.
    number: Of its variant.
    rival: Number of the variant that was in use.
    verdict: On its speed; None if it did not come to be measured.
    words: What came of it.
  """

  proposal: proposals.Proposal
  number: int
  rival: int
  verdict: verdict_lib.Verdict | None
  words: str


class Surroundings(Protocol):
  """What the loop asks of the process that it runs in."""

  @property
  def has_profile_build(self) -> bool:
    """Whether the step is compiled in another way to be traced."""
    ...

  @property
  def lost_per_core(self) -> float:
    """What a run loses while one core works beside it, as a part of the time.

    0 where the step does not run on the host's cores.
    """
    ...

  @property
  def is_trace_ending(self) -> bool:
    """Whether the latest trace is being ended and written, beside training."""
    ...

  def now_s(self) -> float:
    """A clock that only goes forward."""
    ...

  def begin_search(self, step_s: float, most_s: float | None) -> None:
    """Has proposals made from now on, with the latest trace if there is one.

    A trace that is still ending is given up.

    Args:
      step_s: What a step takes.
      most_s: What the search may take of a core; None for no bound.
    """
    ...

  def end_search(self) -> None:
    """Nobody waits for more proposals."""
    ...

  def found(self) -> proposals.Proposal | None:
    """The next proposal; None where there is none yet.

    Raises:
      StopIteration: There will be no more; its value, if any, says why.
      Exception: The search failed.
    """
    ...

  def votes(self, number: int) -> Mapping[int, Vote]:
    """What processes have said of their compiles of a proposal so far."""
    ...

  def note(self, trial: Trial, most_search_s: float | None) -> None:
    """Takes down what came of a proposal.

    Args:
      trial: What came of it.
      most_search_s: What a search that begins now may take of a core; None for
        no bound.
    """
    ...

  def conclude(self, *, has_tried_all: bool) -> None:
    """The search is over; were all that it found tried?"""
    ...
