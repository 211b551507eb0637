# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The streams of copies, moved forward with the time that passes.

Copies of one stream follow one another; streams run side by side. No copy takes
SMs. The link to the host bounds a host copy, which takes a few hundredths of
the memory's bandwidth, so nothing on the GPU slows it. The memory bounds a
device copy, which a kernel beside it slows as it slows a collective.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator
import dataclasses
import math

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs.replay import costs as costs_lib
from lagom_xla.costs.replay import in_flight
from lagom_xla.passes import copies as copies_lib

# A copy with less than this left is finished.
_NEGLIGIBLE_US = 1e-9


class CopyStreams:
  """The streams of copies in motion.

  Times accumulate with a weight, as those of `streams.Streams` do.

  Attributes:
    lone_us: copies alone, summed.
    wait_us: waits for each copy, by its name.
    slowdown_us: what kernels lost to each copy, by its name.
  """

  def __init__(
    self,
    beside: costs_lib.Beside,
    copies: Iterable[in_flight.CopyInFlight] = (),
  ):
    """Starts with some copies in flight.

    Args:
      beside: what a kernel and a copy do to each other.
      copies: in the order of starts. They are copied.
    """
    self.lone_us = 0.0
    self.wait_us: dict[str, float] = collections.defaultdict(float)
    self.slowdown_us: dict[str, float] = collections.defaultdict(float)
    self._beside = beside
    self._queues: dict[str, collections.deque[in_flight.CopyInFlight]] = {}
    for entry in copies:
      self._append(dataclasses.replace(entry))

  def __bool__(self) -> bool:
    """Whether a copy is in flight."""
    return bool(self._queues)

  def __iter__(self) -> Iterator[in_flight.CopyInFlight]:
    """The copies in flight, stream by stream."""
    for queue in self._queues.values():
      yield from queue

  def next_end_us(self, kernel: kernel_lib.KernelCost) -> float:
    """Time until the first copy ends, beside a kernel."""
    if not self._queues:
      return math.inf
    return min(e.left_us * self._factor(kernel, e) for e in self._running)

  @property
  def last(self) -> list[copies_lib.Copy]:
    """The last copy of each stream."""
    return [queue[-1].copy for queue in self._queues.values()]

  def lost_us(self, kernel: kernel_lib.KernelCost) -> float:
    """What a kernel loses if it runs beside the same copies all along."""
    if not self._queues:  # As nearly always.
      return 0.0
    return sum(self._loss_us(kernel, entry) for entry in self._running)

  def start(
    self,
    copy: copies_lib.Copy,
    cost: collective_lib.CollectiveCost,
    weight: float,
  ) -> None:
    """Puts a copy on its stream."""
    self.lone_us += weight * cost.time_us
    if cost.time_us > 0:
      self._append(in_flight.CopyInFlight(copy, cost, cost.time_us))

  def until_us(self, copy: copies_lib.Copy) -> float:
    """Time until a copy is finished with no kernel beside it; 0 if it is."""
    queue = list(self._queues.get(copy.stream, ()))
    last = max((i for i, e in enumerate(queue) if e.copy is copy), default=-1)
    return sum(entry.left_us for entry in queue[: last + 1])

  def slow(
    self, kernel: kernel_lib.KernelCost, done: float, weight: float
  ) -> None:
    """Counts what a kernel loses while a share of it is done."""
    if not self._queues:
      return
    for entry in self._running:
      lost_us = weight * done * self._loss_us(kernel, entry)
      self.slowdown_us[entry.copy.name] += lost_us

  def advance(
    self, us: float, beside: kernel_lib.KernelCost | None = None
  ) -> None:
    """Moves all streams on by a time, beside a kernel if one runs."""
    if not self._queues:
      return
    for stream, queue in list(self._queues.items()):
      left_us = us
      while queue:
        factor = self._factor(beside, queue[0])
        ends_us = queue[0].left_us * factor
        if left_us <= ends_us - _NEGLIGIBLE_US:
          queue[0].left_us -= left_us / factor
          break
        left_us = max(left_us - ends_us, 0.0)
        queue.popleft()
      if not queue:
        del self._queues[stream]

  @property
  def _running(self) -> list[in_flight.CopyInFlight]:
    """The first copy of each stream."""
    return [queue[0] for queue in self._queues.values()]

  def _loss_us(
    self, kernel: kernel_lib.KernelCost, entry: in_flight.CopyInFlight
  ) -> float:
    return self._beside(kernel, entry.cost).kernel_us - kernel.time_us

  def _factor(
    self, kernel: kernel_lib.KernelCost | None, entry: in_flight.CopyInFlight
  ) -> float:
    """How much longer a copy takes beside a kernel, if one runs."""
    if kernel is None or not entry.copy.is_bound_by_memory:
      return 1.0
    return self._beside(kernel, entry.cost).collective_factor

  def _append(self, entry: in_flight.CopyInFlight) -> None:
    stream = entry.copy.stream
    self._queues.setdefault(stream, collections.deque()).append(entry)
