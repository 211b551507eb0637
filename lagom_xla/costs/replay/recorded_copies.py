# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The streams of copies that a recorder moves: they keep when each ran."""

from __future__ import annotations

import collections
from collections.abc import Callable

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs.replay import copy_streams
from lagom_xla.costs.replay import costs as costs_lib
from lagom_xla.costs.replay import in_motion
from lagom_xla.passes import copies as copies_lib


class RecordedCopies(copy_streams.CopyStreams):
  """Streams of copies that keep when each copy ran.

  Attributes:
    motions: what each stream ran, by its name.
  """

  def __init__(self, beside: costs_lib.Beside, now: Callable[[], float]):
    """Starts with no copy in flight.

    Args:
      beside: what a kernel and a copy do to each other.
      now: tells the time, in microseconds.
    """
    super().__init__(beside)
    self.motions: dict[str, in_motion.Motion] = collections.defaultdict(
      in_motion.Motion
    )
    self._now = now

  def start(
    self,
    copy: copies_lib.Copy,
    cost: collective_lib.CollectiveCost,
    weight: float,
  ) -> None:
    """See `copy_streams.CopyStreams`."""
    super().start(copy, cost, weight)
    if cost.time_us > 0:
      motion = self.motions[copy.stream]
      motion.issue(copy.name, cost, self._now())
      if len(motion) == 1:
        motion.begin(self._now())

  def advance(
    self, us: float, beside: kernel_lib.KernelCost | None = None
  ) -> None:
    """See `copy_streams.CopyStreams`."""
    if not self:
      return
    ends_us = [
      (e.copy.stream, e.left_us * self._factor(beside, e)) for e in self
    ]
    super().advance(us, beside)
    left = collections.Counter(e.copy.stream for e in self)
    now_us = dict.fromkeys(self.motions, self._now())
    for stream, left_us in ends_us:
      motion = self.motions[stream]
      if len(motion) > left[stream]:
        now_us[stream] += left_us
        motion.end(now_us[stream])
        motion.begin(now_us[stream])
