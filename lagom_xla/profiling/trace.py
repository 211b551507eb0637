# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A trace of a run: launches of its devices, on one clock.

    traced = xspace.read("traces")
    traced.devices[0].launches

Times are microseconds since the first process began to profile. A process's own
clock is as good as its host's; `instances.py` corrects it by the collectives
that processes end together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses

# A module in its process: its number, or its name where launches tell none.
Program = int | str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
  """One run of a kernel, or on a CPU of an instruction.

  Attributes:
    hlo_op: instruction that launched it.
    program_id: its module; None if unknown.
    begin_us: when it began.
    end_us: when it ended.
    until_us: when work that it left to other threads had ended at the latest;
      None if it left none.
    execution: equal for one execution of a module, on all devices; None if
      unknown.
    grid: thread blocks, (x, y, z); a NCCL kernel's x are its channels. None if
      unknown.
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
    name: such as "rank0 GPU:0".
    process: index of its process in the trace.
    launches: those that name an HLO instruction, by start time.
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
    processes: in the order of their names.
    devices: of all processes, in that order; those that launched nothing are
      left out.
    begin_ns: when the first process began, since 1970; None if none says it.
    num_left_out: launches that were not read, as there are too many.
    num_other_files: profiles of other runs.
    unread: why files that may be of another run were not read, in sentences.
    problems: reported by profilers, by process.
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
