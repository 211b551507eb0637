# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trials of one key: the places of their settings, and what they showed."""

from __future__ import annotations

import dataclasses

from lagom_xla.costs import nccl
from lagom_xla.search.nccl import space

Subspaces = tuple[space.Subspace, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
  """A setting as a place: a subspace, and positions on its two axes."""

  subspace: int
  channels_at: int
  chunk_at: int

  def setting(self, subspaces: Subspaces) -> nccl.Setting:
    """The setting there."""
    subspace = subspaces[self.subspace]
    return subspace.setting(self.channels_at, self.chunk_at)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
  """What one trial showed of one key.

  Attributes:
    point: its setting; None for one that is no place in the space, which what
      ran without tuning can be.
    num_channels: of the setting.
    time_us: x.
    exposed_us: waits for it.
    slowdown_us: what kernels lost to it.
    is_hidden: whether hardly anything was waited for it.
  """

  point: Point | None
  num_channels: int
  time_us: float
  exposed_us: float
  slowdown_us: float
  is_hidden: bool

  @property
  def loss_us(self) -> float:
    """What it cost the step."""
    return self.exposed_us + self.slowdown_us

  @property
  def hidden_us(self) -> float:
    """For how long kernels ran beside it."""
    return self.time_us - self.exposed_us


def place_of(subspaces: Subspaces, setting: nccl.Setting) -> Point | None:
  """The place of a setting; None if it is none of the space's."""
  for position, subspace in enumerate(subspaces):
    pair = subspace.algorithm, subspace.protocol
    if pair != (setting.algorithm, setting.protocol):
      continue
    if (
      setting.num_channels in subspace.num_channels
      and setting.chunk_bytes in subspace.chunk_bytes
    ):
      return Point(
        position,
        subspace.num_channels.index(setting.num_channels),
        subspace.chunk_bytes.index(setting.chunk_bytes),
      )
  return None
