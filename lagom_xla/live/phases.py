# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Phases, which say what the processes of a job run at their next calls.

A phase is decided by the first process and run by all of them, so that all run
the same variant of the step at the same call. Variant 0 is the step as jit runs
it, variant n is proposal n, and variant -n is the step as it is, built for
profile n.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
import dataclasses
import enum
import json

from lagom_xla import errors
from lagom_xla.live import proposals
from lagom_xla.live import verdict as verdict_lib


class State(enum.StrEnum):
  """What the loop is doing."""

  BASELINE = "baseline"
  PROFILE = "profile"
  SEARCH = "search"
  CANDIDATE = "candidate"
  MEASURE = "measure"
  ADOPT = "adopt"
  REJECT = "reject"
  WATCH = "watch"
  WAIT = "wait"
  STAY = "stay"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Segment:
  """Calls in a row of one variant.

  Attributes:
    variant: The variant.
    num_calls: How many.
    is_timed: Whether the process waits for the results of the last call, and
      notes how long all of them took.
    is_traced: Whether the first process traces them.
    is_watched: Whether the time is noted without waiting for any result.
  """

  variant: int
  num_calls: int
  is_timed: bool = False
  is_traced: bool = False
  is_watched: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
  """What to run at the next calls.

  Attributes:
    state: What the loop is doing.
    segments: Run one after the other; none for the variant in use, for ever.
    in_use: The variant that runs wherever nothing else is said.
    number: Of the variant that is being compiled, measured or traced beside the
      one in use; 0 for none. What others have had compiled is let go of.
    proposal: With that number, once: to be compiled from now on.
    words: What came before it, for the log; "" for nothing to say.
  """

  state: State
  segments: tuple[Segment, ...] = ()
  in_use: int = 0
  number: int = 0
  proposal: proposals.Proposal | None = None
  words: str = ""

  def to_json(self) -> bytes:
    """This phase, for `from_json`."""
    fields = dataclasses.asdict(self)
    if self.proposal is not None:
      payload = base64.b64encode(self.proposal.payload).decode()
      fields["proposal"]["payload"] = payload
    return json.dumps(fields).encode()


def from_json(text: bytes) -> Phase:
  """Reads what `to_json` wrote.

  Raises:
    ProcessesError: It is not a phase, as another version of lagom_xla wrote it.
  """
  try:
    fields = json.loads(text)
    proposal = fields.pop("proposal")
    if proposal is not None:
      payload = base64.b64decode(proposal.pop("payload"))
      proposal = proposals.Proposal(payload=payload, **proposal)
    return Phase(
      state=State(fields.pop("state")),
      segments=tuple(Segment(**it) for it in fields.pop("segments")),
      proposal=proposal,
      **fields,
    )
  except (AttributeError, KeyError, TypeError, ValueError) as error:
    raise errors.ProcessesError(
      "The first process of this job sent a phase that this lagom_xla cannot"
      f" read ({errors.first_line(error)}): install one version of it on all"
      " nodes."
    ) from error


def stay(in_use: int, words: str) -> Phase:
  """The phase that ends the loop, with the variant that is in use."""
  return Phase(state=State.STAY, in_use=in_use, words=words)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vote:
  """What a process says of its compile of a variant.

  Attributes:
    digest: What must be the same in all processes; None if it failed.
    words: Why it failed.
  """

  digest: str | None
  words: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Times:
  """What a phase took.

  Attributes:
    durations_s: Of its segments in order; None of those that have none.
    stall_s: What decisions and traces had the calls wait.
  """

  durations_s: Sequence[float | None] = ()
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

  @property
  def is_adopted(self) -> bool:
    """Whether it has run since."""
    return self.verdict is not None and bool(self.verdict.is_adopted)
