# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A recording of a replay: what ran on which stream, from when to when.

`timeline.py` keeps sums, which is all that a search compares; a recording keeps
each kernel, wait and collective, for pictures and traces. `recorder.py` makes
one.
"""

from __future__ import annotations

import dataclasses

# Streams of a recording; those of copies have the names that they have.
COMPUTE = "compute"
COMMUNICATION = "communication"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
  """What one stream did for a time; times in microseconds from the start.

  Attributes:
    stream: COMPUTE, COMMUNICATION or a stream of copies.
    kind: "kernel", "wait" (the compute stream held by a collective or copy),
      "collective", "copy" or "folded" (trips of a loop that are like the last).
    name: of the instruction; of a wait, what is waited for; "" of a fold.
    begin_us: when it began.
    end_us: when it ended.
    lone_us: what it takes alone: a kernel, or all of a collective or copy. Of
      folded trips, all their kernels alone.
    lost_us: collective or copy -> what a kernel lost to it, 0 if nothing; of
      folded trips, what their kernels lost. Names say what it ran beside.
    issued_us: when its start was reached, of collectives and copies.
    done_us: when its done had been passed; of one that is never awaited, when
      it ended.
    num_trips: how many trips a fold stands for; 0 otherwise.
    wait_us: of folded trips, all their waits.
    num_channels: of a collective.
  """

  stream: str
  kind: str
  name: str
  begin_us: float
  end_us: float
  lone_us: float = 0.0
  lost_us: tuple[tuple[str, float], ...] = ()
  issued_us: float = 0.0
  done_us: float = 0.0
  num_trips: int = 0
  wait_us: float = 0.0
  num_channels: int = 0

  @property
  def time_us(self) -> float:
    """How long it ran."""
    return self.end_us - self.begin_us


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
  """A replayed step, slice by slice.

  Attributes:
    step_time_us: as the timeline's.
    slices: in the order in which they ended; those of one stream follow each
      other.
  """

  step_time_us: float
  slices: tuple[Slice, ...]

  @property
  def streams(self) -> tuple[str, ...]:
    """Its streams, that of kernels first."""
    found = dict.fromkeys([COMPUTE, *(s.stream for s in self.slices)])
    return tuple(found)
