# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Collectives and copies in flight between two parts of a program."""

from __future__ import annotations

import dataclasses

from lagom_xla.costs import collective as collective_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import copies as copies_lib


@dataclasses.dataclass(slots=True)
class InFlight:
  """A collective on the communication stream.

  Attributes:
    collective: which one.
    cost: of it alone.
    left_us: what is left of it, at its lone pace.
    wait_us: how long it still waits for SMs.
  """

  collective: collectives_lib.Collective
  cost: collective_lib.CollectiveCost
  left_us: float
  wait_us: float = 0.0


@dataclasses.dataclass(slots=True)
class CopyInFlight:
  """A copy on its stream.

  Attributes:
    copy: which one.
    cost: of it alone.
    left_us: what is left of it.
  """

  copy: copies_lib.Copy
  cost: collective_lib.CollectiveCost
  left_us: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class State:
  """All that is in flight.

  Attributes:
    collectives: on the communication stream, the running one first.
    copies: on the streams of copies, those of one stream in its order.
  """

  collectives: tuple[InFlight, ...] = ()
  copies: tuple[CopyInFlight, ...] = ()

  def signature(self) -> tuple[object, ...]:
    """What states share from which streams go on alike, to 1e-9 µs."""
    return (
      *(
        (e.collective.name, e.cost, round(e.left_us, 9), round(e.wait_us, 9))
        for e in self.collectives
      ),
      *((e.copy.name, round(e.left_us, 9)) for e in self.copies),
    )
