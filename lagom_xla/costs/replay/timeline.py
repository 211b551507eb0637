# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The timeline of a step: its time, the waits, and what is lost to contention.

    program = program_lib.of_module(analysis)
    timeline.replay(program, costs).step_time_us

`streams.py` says how the streams move.
"""

from __future__ import annotations

import dataclasses

from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import streams as streams_lib


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
  """A replayed step. All times are per step, in microseconds.

  The step time is the sum of what kernels take alone, what they lose to
  collectives and to copies, and the waits.

  Attributes:
    step_time_us: from the first kernel or start until all streams are empty.
    kernel_us: kernels alone, summed.
    collective_us: collectives alone, summed.
    exposed_us: waits for each collective, by its name.
    slowdown_us: (kernel, collective) names -> what the kernel lost to the
      collective.
    delay_us: what each collective lost to kernels, late starts included, by its
      name.
    copy_us: copies alone, summed.
    copy_wait_us: waits for each copy, by its name.
    copy_slowdown_us: what kernels lost to each copy, by its name.
  """

  step_time_us: float
  kernel_us: float
  collective_us: float
  exposed_us: dict[str, float]
  slowdown_us: dict[tuple[str, str], float]
  delay_us: dict[str, float] = dataclasses.field(default_factory=dict)
  copy_us: float = 0.0
  copy_wait_us: dict[str, float] = dataclasses.field(default_factory=dict)
  copy_slowdown_us: dict[str, float] = dataclasses.field(default_factory=dict)

  @property
  def total_exposed_us(self) -> float:
    """All waits for collectives."""
    return sum(self.exposed_us.values())

  @property
  def total_slowdown_us(self) -> float:
    """All that kernels lost to collectives."""
    return sum(self.slowdown_us.values())

  @property
  def total_delay_us(self) -> float:
    """All that collectives lost to kernels."""
    return sum(self.delay_us.values())

  @property
  def total_copy_wait_us(self) -> float:
    """All waits for copies."""
    return sum(self.copy_wait_us.values(), 0.0)

  @property
  def total_copy_slowdown_us(self) -> float:
    """All that kernels lost to copies."""
    return sum(self.copy_slowdown_us.values(), 0.0)


def replay(program: program_lib.Program, costs: streams_lib.Costs) -> Timeline:
  """Replays a program from empty streams until they are empty again.

  Args:
    program: what runs.
    costs: of its kernels and collectives.
  """
  streams = streams_lib.Streams(costs)
  streams.run(program)
  streams.drain()
  return _timeline(streams)


def replay_segment(
  program: program_lib.Program,
  costs: streams_lib.Costs,
  state: streams_lib.State,
) -> tuple[Timeline, streams_lib.State]:
  """Replays a segment of a program.

  Args:
    program: the segment.
    costs: as for `replay`.
    state: what the segment before left in flight.

  Returns:
    The timeline of the segment, and what it leaves in flight.
  """
  streams = streams_lib.Streams(costs, state)
  streams.run(program)
  return _timeline(streams), streams.state


def _timeline(streams: streams_lib.Streams) -> Timeline:
  return Timeline(
    step_time_us=streams.now_us,
    kernel_us=streams.kernel_us,
    collective_us=streams.collective_us,
    exposed_us=dict(streams.exposed_us),
    slowdown_us=dict(streams.slowdown_us),
    delay_us=dict(streams.delay_us),
    copy_us=streams.copies.lone_us,
    copy_wait_us=dict(streams.copies.wait_us),
    copy_slowdown_us=dict(streams.copies.slowdown_us),
  )
