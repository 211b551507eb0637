# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Raising of a collective in Lagom's search: more channels and larger chunks.

Algorithm 2, line 8, of arXiv 2602.20656 makes lr negative whenever it is used,
and adds a ratio to a number of channels. Here lr = (x_j - x'_j) / x_j, which is
AutoCCL's BwDelta / Bw, and a knob grows by that share of itself, at least to
its next value: NC <- NC (1 + lr), C <- C (1 + lr).
"""

from __future__ import annotations

import dataclasses
import math

from lagom_xla.costs import nccl
from lagom_xla.search.nccl import space


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
  """Where the search stands with one collective.

  Attributes:
    subspace: the algorithm and protocol that were chosen.
    channels_at: position of NC on its axis.
    chunk_at: position of C on its axis.
    time_us: x_j at this setting.
    h: the priority metric H_j.
    lr: relative gain of the last raise.
  """

  subspace: space.Subspace
  channels_at: int = 0
  chunk_at: int = 0
  time_us: float = math.inf
  h: float
  lr: float

  @property
  def setting(self) -> nccl.Setting:
    """Its NCCL setting."""
    return self.subspace.setting(self.channels_at, self.chunk_at)

  @property
  def can_grow(self) -> bool:
    """Whether a knob is below its limit."""
    return self.channels_at + 1 < len(
      self.subspace.num_channels
    ) or self.chunk_at + 1 < len(self.subspace.chunk_bytes)

  def grown(self) -> Collective:
    """With all knobs raised by lr, at least to their next value."""
    return dataclasses.replace(
      self,
      channels_at=_raise(self.subspace.num_channels, self.channels_at, self.lr),
      chunk_at=_raise(self.subspace.chunk_bytes, self.chunk_at, self.lr),
    )


def _raise(axis: tuple[int, ...], at: int, lr: float) -> int:
  """The position of the first value at or above axis[at] * (1 + lr)."""
  if at + 1 >= len(axis):
    return at
  wanted = axis[at] * (1 + lr)
  return next(
    (i for i in range(at + 1, len(axis)) if axis[i] >= wanted),
    len(axis) - 1,
  )
