# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The motion of one stream's collectives or copies: issued, begun, ended, done.

The stream runs them one after the other in the order in which they were issued.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
import dataclasses

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs.replay import recording as recording_lib


@dataclasses.dataclass(slots=True)
class Run:
  """One collective or host copy as it ran once; times in microseconds.

  Attributes:
    name: of it.
    cost: of it alone.
    issued_us: when its start was reached.
    begin_us: when it began; None before.
    end_us: when it ended; None before.
    done_us: when its done had been passed; None before.
  """

  name: str
  cost: collective_lib.CollectiveCost
  issued_us: float
  begin_us: float | None = None
  end_us: float | None = None
  done_us: float | None = None


class Motion:
  """What one stream runs, and has run.

  Attributes:
    ended: what has run, in order.
  """

  def __init__(self) -> None:
    self.ended: list[Run] = []
    self._queue: collections.deque[Run] = collections.deque()
    self._awaited: dict[str, collections.deque[Run]] = collections.defaultdict(
      collections.deque
    )

  def __len__(self) -> int:
    """How many have not ended."""
    return len(self._queue)

  def issue(
    self, name: str, cost: collective_lib.CollectiveCost, now_us: float
  ) -> None:
    """Puts one on the stream."""
    run = Run(name, cost, now_us)
    self._queue.append(run)
    self._awaited[name].append(run)

  def begin(self, now_us: float) -> None:
    """Begins the first one, if there is one that has not begun."""
    if self._queue and self._queue[0].begin_us is None:
      self._queue[0].begin_us = now_us

  def end(self, now_us: float) -> None:
    """Ends the first one."""
    run = self._queue.popleft()
    if run.begin_us is None:
      run.begin_us = now_us
    run.end_us = now_us
    self.ended.append(run)

  def done(self, name: str, now_us: float) -> None:
    """Passes the done of the oldest one of a name, if it has none so far."""
    if waiting := self._awaited[name]:
      waiting.popleft().done_us = now_us

  def skip(self, now_us: float, until_us: float, trip_us: float) -> bool:
    """Lets a time pass in which others ran as these did in the last trip.

    The one that is running ends, and what was issued is issued again after it.

    Args:
      now_us: when the trip ended.
      until_us: when others like it have ended.
      trip_us: how long the trip was.

    Returns:
      Whether anything ran in the trip.
    """
    has_run = bool(self._queue) or (
      bool(self.ended) and (self.ended[-1].end_us or 0.0) > now_us - trip_us
    )
    if self._queue and self._queue[0].begin_us is not None:
      running = self._queue[0]
      cut = dataclasses.replace(running, end_us=now_us, done_us=now_us)
      self.ended.append(cut)
      running.begin_us = until_us
    for run in self._queue:
      run.issued_us = until_us
    return has_run

  def slices(self, stream: str, kind: str) -> Iterator[recording_lib.Slice]:
    """What has run, as slices of a recording.

    Args:
      stream: this one's name.
      kind: of its slices.
    """
    for run in self.ended:
      assert run.begin_us is not None and run.end_us is not None
      yield recording_lib.Slice(
        stream=stream,
        kind=kind,
        name=run.name,
        begin_us=run.begin_us,
        end_us=run.end_us,
        lone_us=run.cost.time_us,
        issued_us=run.issued_us,
        done_us=run.end_us if run.done_us is None else run.done_us,
        num_channels=run.cost.num_channels,
      )
