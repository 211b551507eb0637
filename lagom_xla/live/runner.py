# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Player of scripts: which variant a call runs, and what blocks of calls take.

A timed block lasts from the end of the block before it until the results of its
last call are there: what the user's program does between calls counts, for all
variants alike. While the program calls the step with other shapes the clock
stands still.
"""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import math
import time
from typing import Any

import jax

from lagom_xla.live import script as script_lib
from lagom_xla.live import tracing

# The script that follows one that was played, the same in all processes.
Follow = Callable[[script_lib.Played], script_lib.Script]


class Player:
  """Plays the scripts of one signature, in processes that trace with a tracer.

  Attributes:
    script: The one that is played.
    segment: The part of it that is; None where there is nothing to count any
      more.
    num_scripts: How many there have been.
  """

  script: script_lib.Script
  segment: script_lib.Segment | None

  def __init__(self, follow: Follow, tracer: tracing.Tracer | None):
    self._follow = follow
    self._tracer = tracer
    self._clock = time.perf_counter
    # When the running block began; None while the clock stands still.
    self._mark_s: float | None = None
    self._elapsed_s = 0.0
    self._stall_s = 0.0
    self._num_left = 0
    self._num_lent = 0
    self.num_scripts = 0
    self._take(script_lib.Played())

  @property
  def variant(self) -> int:
    """What the next call runs."""
    if self.segment is None:
      return self.script.in_use
    return self.segment.variant

  def lend(self) -> float:
    """How many calls may go without `begin` and `end`; they count as made.

    In a block these are all but the first and the last one, unless it takes
    turns with blocks of another variant: one that raises is to be noticed, and
    what is compared is to be called alike. Where nothing is counted any more
    there are infinitely many.
    """
    if self.segment is None:
      return math.inf
    if self._is_plain and self._mark_s is not None:
      self._num_lent = max(self._num_left - 1, 0)
      self._num_left -= self._num_lent
    return self._num_lent

  def take_back(self, num_calls: float) -> None:
    """So many of the calls that were lent last were not made.

    Threads that call at once count them roughly: no more than were lent.
    """
    self._num_left += int(min(max(num_calls, 0), self._num_lent))
    self._num_lent = 0

  def begin(self, arguments: object) -> contextlib.AbstractContextManager[Any]:
    """Before a call; the call is to be made within what is returned."""
    self._num_lent = 0
    if self.segment is not None and not self._num_left:
      self._end_segment(self.segment)
      self._next_segment()
    segment = self.segment
    if segment is None:
      return contextlib.nullcontext()
    if self._mark_s is None:
      wait_for(arguments)
      self._mark_s = self._clock()
    if segment.is_traced and self._tracer is not None:
      if self._num_left == segment.num_calls:
        with self._stalling():
          self._tracer.start()
      return self._tracer.step()
    return contextlib.nullcontext()

  def end(self, results: object) -> None:
    """After a call."""
    segment = self.segment
    if segment is None:
      return
    self._num_left -= 1
    if self._num_left:
      return
    try:
      if not segment.is_watched:
        wait_for(results)
    finally:
      self._end_segment(segment)

  def pause(self, arguments: object) -> None:
    """The program calls the step with other shapes, and these arguments.

    They often hold results of this player's calls, which are waited for.
    """
    if self._mark_s is None:
      return
    if self.segment is not None and not self.segment.is_watched:
      wait_for(arguments)
    self._elapsed_s += self._clock() - self._mark_s
    self._mark_s = None
    if self.segment is not None and self.segment.is_traced:
      self._end_trace()

  def stall(self, seconds: float) -> None:
    """The running call takes so much longer, which is no block's time."""
    self._stall_s += seconds
    if self._mark_s is not None:
      self._mark_s += seconds

  def _end_segment(self, segment: script_lib.Segment) -> None:
    """Ends its trace and notes what it took; once, should Ctrl-C come between.

    The call after a segment sees to that, too.
    """
    if len(self._ends_s) > self._index:
      return
    if segment.is_traced:
      self._end_trace()
    now_s = self._clock()
    seconds = None
    if self._mark_s is not None and (segment.is_timed or segment.is_watched):
      seconds = self._elapsed_s + now_s - self._mark_s
    self._ends_s.append(seconds)
    self._mark_s, self._elapsed_s = now_s, 0.0

  def _end_trace(self) -> None:
    if self._tracer is not None:
      with self._stalling():
        self._tracer.end()

  def _next_segment(self) -> None:
    if self._index + 1 < len(self.script.segments):
      self._enter(self._index + 1)
      return
    played = script_lib.Played(
      durations_s=tuple(self._ends_s), stall_s=self._stall_s
    )
    self._stall_s = 0.0
    with self._stalling():
      self._take(played)

  def _take(self, played: script_lib.Played) -> None:
    self.script = self._follow(played)
    self._is_plain = not any(
      it.is_traced or it.variant != self.script.in_use
      for it in self.script.segments
    )
    self.num_scripts += 1
    # Seconds of each segment that ended; None if untimed.
    self._ends_s: list[float | None] = []
    self._enter(0)

  def _enter(self, index: int) -> None:
    self._index = index
    self.segment = None
    if index < len(self.script.segments):
      self.segment = self.script.segments[index]
      self._num_left = self.segment.num_calls

  @contextlib.contextmanager
  def _stalling(self):
    """Counts as a stall, and as no block's time."""
    start_s = self._clock()
    yield
    self.stall(self._clock() - start_s)


def wait_for(values: object) -> None:
  """Waits for values; whoever uses them hears what went wrong, as under jit."""
  with contextlib.suppress(Exception):
    jax.block_until_ready(values)
