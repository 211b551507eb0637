# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The outcome of a program pass: what it did, what it left alone, and why."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
  """Something that a pass left as it was.

  Attributes:
    where: the place in the program: its source line, or what stands there.
    reason: why, as the end of a sentence that begins with the place.
  """

  where: str
  reason: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
  """What a pass did to a program.

  Attributes:
    actions: what it did, a sentence each; none where the program is as it was.
    refusals: what it would have done but for a reason.
  """

  actions: tuple[str, ...] = ()
  refusals: tuple[Refusal, ...] = ()

  def __add__(self, other: Outcome) -> Outcome:
    return Outcome(
      actions=self.actions + other.actions,
      refusals=self.refusals + other.refusals,
    )
