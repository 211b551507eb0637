# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A trace of a run: launches of its devices, on one clock.

    traced = xspace.read("traces")
    traced.devices[0].launches

Times are microseconds since the first process began to profile. A process's
clock is as accurate as its host's. `instances.py` corrects it with collectives
that processes end together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses

# A module in its process: its number, or its name if launches have no number.
Program = int | str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
  """One run of a kernel or, on a CPU, of an instruction.

  Attributes:
    hlo_op: the instruction that launched it.
    program_id: its module; None if unknown.
    begin_us: start time.
    end_us: end time.
    until_us: latest end of work on other threads; None without such work.
    execution: ID of the module's execution, equal on all devices; None if
      unknown.
    grid: thread blocks (x, y, z); x is the number of channels in a NCCL kernel.
      None if unknown.
  """

  hlo_op: str
  program_id: Program | None
  begin_us: float
  end_us: float
  until_us: float | None = None
  execution: int | None = None
  grid: tuple[int, int, int] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Device:
  """One GPU, or one of a host's CPU devices.

  Attributes:
    name: the device's name, such as "rank0 GPU:0".
    process: index of its process in the trace.
    launches: launches with an HLO instruction, by start time.
    num_unnamed: number of launches and copies without an instruction.
    unnamed_us: total time of these.
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
    name: name of its file.
    has_clock: whether the trace has the start time of the profile.
    modules: serialized HloProtos by program; several may share a name.
  """

  name: str
  has_clock: bool
  modules: Mapping[Program, Sequence[bytes]]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
  """The traces of a run's processes.

  Attributes:
    platform: "GPU" or "CPU".
    processes: the processes, in the order of their names.
    devices: the devices of all processes, in that order, except devices without
      launches.
    begin_ns: start of the first process, since 1970; None if unknown.
    num_left_out: number of launches beyond the limit, which were not read.
    num_other_files: number of profiles of other runs.
    unread: why files, possibly of another run, were not read, in sentences.
    problems: problems that profilers reported, by process.
  """

  platform: str
  processes: tuple[Process, ...]
  devices: tuple[Device, ...]
  begin_ns: int | None = None
  num_left_out: int = 0
  num_other_files: int = 0
  unread: tuple[str, ...] = ()
  problems: Mapping[str, tuple[str, ...]] = dataclasses.field(
    default_factory=dict
  )
