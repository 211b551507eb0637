# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A trace of a run: what its GPUs launched and when, on one clock.

    traced = xspace.read("traces")
    traced.devices[0].launches

Times are microseconds since the first process began to profile. A process's own
clock is as good as its host's; `instances.py` corrects it by the collectives
that processes end together.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
  """One kernel as it ran once.

  Attributes:
    hlo_op: instruction that launched it.
    program_id: of its module in its process; None where the trace has none.
    stream: CUDA's number of it.
    begin_us: when it began.
    end_us: when it ended.
    grid: thread blocks, (x, y, z); a NCCL kernel's x are its channels. None
      where the trace has none.
    block: threads of a block; None where the trace has none.
    occupancy_pct: theoretical occupancy, in percent; None if unknown.
  """

  hlo_op: str
  program_id: int | None
  stream: int
  begin_us: float
  end_us: float
  grid: tuple[int, int, int] | None = None
  block: tuple[int, int, int] | None = None
  occupancy_pct: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Device:
  """One GPU.

  Attributes:
    name: such as "rank0 GPU:0".
    process: index of its process in the trace.
    launches: those that name an HLO instruction, by their start.
    num_unnamed: launches and copies that name none.
    unnamed_us: time of those.
  """

  name: str
  process: int
  launches: tuple[Launch, ...]
  num_unnamed: int
  unnamed_us: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Process:
  """One process's XSpace.

  Attributes:
    name: of its file.
    has_clock: whether the trace says when its profile began.
    modules: serialized HloProtos by program id.
  """

  name: str
  has_clock: bool
  modules: Mapping[int, bytes]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
  """What a run's processes traced.

  Attributes:
    processes: in the order of their files' names.
    devices: of all processes, in that order; GPUs that launched nothing are
      left out.
  """

  processes: tuple[Process, ...]
  devices: tuple[Device, ...]
