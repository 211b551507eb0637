# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The form of a program: how passes rewrite it before XLA sees it, as data.

Also the outcome of a pass: what it did, what it left alone, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
from typing import Literal

# Passes of two micro-batches that run side by side:
#   "none"       no passes: the program as written;
#   "merged"     both forward passes, then both backward passes (Domino, arXiv
#                2409.15241);
#   "staggered"  one micro-batch's backward pass with the next one's forward
#                pass (DHelix, arXiv 2411.15871), where both are written out;
#   "rotated"    the same where a loop runs over the micro-batches;
#   "paired"     "merged" where a loop runs over the micro-batches.
Strands = Literal["none", "merged", "staggered", "rotated", "paired"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Form:
  """How a program is rewritten before XLA sees it.

  Attributes:
    strands: which passes of two micro-batches share a loop.
    keyed: whether each strand's collectives have their own combiner key, so
      that XLA never combines collectives of two strands.
    slices: label of a chain -> number of pieces to cut it into.
  """

  strands: Strands = "none"
  keyed: bool = False
  slices: Mapping[str, int] = dataclasses.field(default_factory=dict)

  @property
  def is_as_written(self) -> bool:
    """Whether it leaves a program as it is."""
    return self.strands == "none" and not (self.keyed or self.slices)


AS_WRITTEN = Form()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
  """Something that a pass did not rewrite.

  Attributes:
    where: the place in the program: its source line, or a description.
    reason: the reason, as the end of a sentence that begins with the place.
  """

  where: str
  reason: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
  """What a pass did to a program.

  Attributes:
    actions: its changes, one sentence each; () if the program is unchanged.
    refusals: what it could not do, and why.
  """

  actions: tuple[str, ...] = ()
  refusals: tuple[Refusal, ...] = ()

  @classmethod
  def refused(cls, where: str, reason: str) -> Outcome:
    """The outcome of a pass that did nothing, for one reason."""
    return cls(refusals=(Refusal(where=where, reason=reason),))

  def __add__(self, other: Outcome) -> Outcome:
    return Outcome(
      actions=self.actions + other.actions,
      refusals=self.refusals + other.refusals,
    )
