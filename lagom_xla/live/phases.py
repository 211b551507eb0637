# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Phases: which variants a job's processes run at their next calls.

The first process decides each phase, and all processes run it. So all run the
same variant of the step at the same call. Variant 0 is jit's own executable,
variant n is proposal n, and variant -n is the unchanged step built for profile
n.
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
  """The state of the loop."""

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
    """This state with the words of its phase, for logs and reports."""
    if not words:
      return self.value
    return f"{self} {words}" if self is State.WAIT else f"{self}: {words}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Segment:
  """Consecutive calls of one variant.

  If timed, the process waits for the last results and records the time of all
  calls. If watched, it records the time without waiting. Only the first process
  traces.
  """

  variant: int
  num_calls: int
  is_timed: bool = False
  is_traced: bool = False
  is_watched: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
  """The variants to run at the next calls.

  Attributes:
    state: The state of the loop.
    segments: The segments to run, in order. If empty, the variant in use runs
      forever.
    in_use: The variant that runs unless a segment names another.
    number: The variant that is being compiled, measured or traced; 0 for none.
      Other compiled variants are dropped.
    proposal: The proposal to compile as that variant, from now on.
    words: Details for the log, if any.
  """

  state: State
  segments: tuple[Segment, ...] = ()
  in_use: int = 0
  number: int = 0
  proposal: proposals.Proposal | None = None
  words: str = ""

  def to_json(self) -> bytes:
    """This phase as JSON, for `from_json`."""
    fields = dataclasses.asdict(self)
    if self.proposal is not None:
      payload = base64.b64encode(self.proposal.payload).decode()
      fields["proposal"]["payload"] = payload
    return json.dumps(fields).encode()


def from_json(text: bytes) -> Phase:
  """Reads the JSON of `to_json`; raises a ProcessesError if it is invalid."""
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
  """The phase that ends the loop with the variant in use."""
  return Phase(state=State.STAY, in_use=in_use, words=words)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vote:
  """The result of a process's compile of a variant, or why it failed.

  Digests must be equal in all processes.
  """

  digest: str | None
  words: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Times:
  """Times of segments; `stall_s` is the wait for decisions and traces."""

  durations_s: Sequence[float | None] = ()
  stall_s: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
  """The trial of a proposal.

  `number` is its variant, `rival` the variant that was in use. `verdict` is
  None if the proposal was not measured.
  """

  proposal: proposals.Proposal
  number: int
  rival: int
  verdict: verdict_lib.Verdict | None
  words: str

  @property
  def is_adopted(self) -> bool:
    """Whether the proposal was adopted."""
    return self.verdict is not None and bool(self.verdict.is_adopted)
