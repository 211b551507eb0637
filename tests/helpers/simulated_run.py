# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A simulated run of a module with known times: the kernels of every rank.

Ranks go through the schedule together. A kernel takes its lone time, or 1.5
times as long while a collective runs beside it. A collective begins on each
rank when it arrives, and ends on all of them together, its own time after the
last arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.profiling import xspace
import xspace_text

_COMPUTE, _COLLECTIVES = "Stream #20(Compute)", "Stream #24(Kernel)"
SLOWDOWN = 1.5
GAP_US = 1.0


@dataclasses.dataclass(kw_only=True)
class Run:
  """A run of a few steps, with late ranks in each."""

  module: hlo.Module
  lone_us: Callable[[str], float]
  own_us: Callable[[str], float]
  channels: int = 24
  late_us: Sequence[float] = (0.0, 0.0)

  def __post_init__(self):
    self._now = [0.0 for _ in self.late_us]
    self._free = [0.0 for _ in self.late_us]
    self._ends: dict[str, float] = {}
    self.kernels: list[list[xspace_text.Kernel]] = [[] for _ in self.late_us]
    self.step_us: list[list[float]] = []

  def steps(self, number: int) -> list[list[xspace_text.Kernel]]:
    """The kernels of each rank in this many steps."""
    program = program_lib.of_module(overlap_lib.analyze(self.module))
    for _ in range(number):
      # Ranks begin together, except for late ones.
      begin = max(self._now + self._free) + 100.0
      self._now = [begin + late_us for late_us in self.late_us]
      firsts = list(map(len, self.kernels))
      self._run(program)
      ran = [k[first:] for k, first in zip(self.kernels, firsts, strict=True)]
      self.step_us.append(
        [max(k.begin_us + k.time_us for k in r) - r[0].begin_us for r in ran]
      )
    return self.kernels

  def _run(self, program: program_lib.Program) -> None:
    for part in program:
      match part:
        case program_lib.Launch(kernel):
          self._launch(kernel.name)
        case program_lib.Start(collective):
          self._start(collective.name)
        case program_lib.Wait(collective):
          end_us = self._ends[collective.name]
          self._now = [max(now, end_us) for now in self._now]
        case program_lib.Loop(body, num_trips):
          for _ in range(num_trips):
            self._run(body)

  def _launch(self, name: str) -> None:
    lone_us = self.lone_us(name)
    for rank, now in enumerate(self._now):
      beside_us = min(max(self._free[rank] - now, 0.0), SLOWDOWN * lone_us)
      time_us = lone_us + beside_us * (1 - 1 / SLOWDOWN)
      self.kernels[rank].append(
        xspace_text.Kernel(
          op=name, begin_us=now, time_us=time_us, stream=_COMPUTE
        )
      )
      self._now[rank] = now + time_us + GAP_US

  def _start(self, name: str) -> None:
    op, _, member = name.partition("/")
    begins = [max(p) for p in zip(self._now, self._free, strict=True)]
    end_us = max(begins) + self.own_us(name)
    for rank, begin_us in enumerate(begins):
      # All members of a group are one launch.
      if member and self.kernels[rank][-1].op == op:
        begin_us = self.kernels[rank].pop().begin_us
      self.kernels[rank].append(
        xspace_text.Kernel(
          op=op,
          begin_us=begin_us,
          time_us=end_us - begin_us,
          stream=_COLLECTIVES,
          num_blocks=self.channels,
        )
      )
    self._free = [end_us for _ in self._free]
    self._ends[name] = end_us


# A run of eight ranks, one of them late.
H100S = cluster_lib.parse("1x8xh100")
OWN_US = 50.0


def lone_us(name: str) -> float:
  return 20.0 + len(name)


def process_of(
  module: hlo.Module, *, without: str | None = None
) -> xspace_text.Process:
  run = Run(
    module=module,
    lone_us=lone_us,
    own_us=lambda _: OWN_US,
    late_us=[0.0] * 7 + [400.0],
  )
  ranks = [[k for k in rank if k.op != without] for rank in run.steps(3)]
  return xspace_text.Process(devices=ranks, module=module)


def profile_of(
  module: hlo.Module, *, without: str | None = None
) -> profile_lib.Profile:
  process = process_of(module, without=without)
  trace = xspace.of_bytes({"host": xspace_text.serialized(process)})
  return profile_lib.of_trace(trace)
