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
  PROFILE = "profiling"
  SEARCH = "searching"
  CANDIDATE = "compiling"
  MEASURE = "measuring"
  ADOPT = "adopted"
  REJECT = "rejected"
  WATCH = "watching"
  WAIT = "waiting"
  STAY = "stopped"

  def in_words(self, words: str) -> str:
    """This state and the words of its phase, as logs and reports show them."""
    if not words:
      return self.value
    return f"{self} {words}" if self is State.WAIT else f"{self}: {words}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Segment:
  """Calls in a row of one variant.

  If timed, the process waits for the results of the last one and notes how long
  all of them took; if watched, it notes that without waiting. What is traced is
  so by the first process.
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
  """Reads what `to_json` wrote; raises a ProcessesError for anything else."""
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
      f" read ({errors.first_line(error)}): install the same version on all"
      " nodes."
    ) from error


def stay(in_use: int, words: str) -> Phase:
  """The phase that ends the loop, with the variant that is in use."""
  return Phase(state=State.STAY, in_use=in_use, words=words)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vote:
  """What a process says of its compile of a variant, or why that failed.

  The digest must be the same in all processes.
  """

  digest: str | None
  words: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Times:
  """What its segments took, and what decisions and traces had calls wait."""

  durations_s: Sequence[float | None] = ()
  stall_s: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
  """What came of a proposal, which is variant `number`, in words.

  `rival` is the variant that was in use. There is no verdict on a proposal that
  did not come to be measured.
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
