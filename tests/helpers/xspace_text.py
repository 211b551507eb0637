# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XSpaces for tests, with the fields of XLA's GPU profiler.

The fields are those of tsl/profiler/protobuf/xplane.proto, written as text and
serialized by jaxlib itself; the module is in /host:metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import pathlib

import jax

from lagom_xla.passes import hlo
from lagom_xla.passes import hlo_pb2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kernel:
  """A kernel on a stream; times are relative to its process's start."""

  op: str
  begin_us: float
  time_us: float
  stream: str = "Stream #20(Compute)"
  num_blocks: int = 132


@dataclasses.dataclass(frozen=True, kw_only=True)
class Process:
  """The trace of one process: the kernels of each device, and the module.

  Times are since the epoch; None omits a field.
  """

  devices: Sequence[Sequence[Kernel]]
  start_ns: int | None = 1_770_000_000_000_000_000
  stop_ns: int | None = None
  module: hlo.Module | None = None
  program_id: int = 17


def serialized(process: Process) -> bytes:
  """The XSpace of a process."""
  planes = [_metadata(process)] if process.module else []
  planes += [
    _device(index, kernels, process.program_id)
    for index, kernels in enumerate(process.devices)
  ]
  planes.append(_environment(process))
  return jax.profiler.ProfileData.text_proto_to_serialized_xspace(
    "\n".join(planes)
  )


def write(folder: pathlib.Path, process: Process) -> None:
  """Writes the trace of a process where jax.profiler would."""
  folder.mkdir()
  (folder / "host.xplane.pb").write_bytes(serialized(process))


def _environment(process: Process) -> str:
  times = {
    "profile_start_time": process.start_ns,
    "profile_stop_time": process.stop_ns,
  }
  parts = [
    f'stat_metadata {{ key: {i} value {{ id: {i} name: "{name}" }} }}'
    f" stats {{ metadata_id: {i} uint64_value: {time_ns} }}"
    for i, (name, time_ns) in enumerate(times.items(), start=1)
    if time_ns is not None
  ]
  return f'planes {{ name: "Task Environment" {" ".join(parts)} }}'


def _metadata(process: Process) -> str:
  assert process.module is not None
  proto = hlo_pb2.HloProto(hlo_module=process.module.proto)
  escaped = "".join(f"\\{byte:03o}" for byte in proto.SerializeToString())
  name = f"{process.module.name}({process.program_id})"
  return (
    'planes { name: "/host:metadata"'
    ' stat_metadata { key: 1 value { id: 1 name: "Hlo Proto" } }'
    f' event_metadata {{ key: 1 value {{ id: 1 name: "{name}" stats {{'
    f' metadata_id: 1 bytes_value: "{escaped}" }} }} }} }}'
  )


def _device(index: int, kernels: Sequence[Kernel], program_id: int) -> str:
  stats = ("hlo_op", "hlo_module", "program_id", "kernel_details")
  parts = [f'planes {{ id: {index + 1} name: "/device:GPU:{index}"']
  parts += [
    f'stat_metadata {{ key: {i} value {{ id: {i} name: "{name}" }} }}'
    for i, name in enumerate(stats, start=1)
  ]
  # The kernel's name differs from the instruction's.
  parts.append('event_metadata { key: 1 value { id: 1 name: "kernel_7" } }')
  streams = dict.fromkeys(kernel.stream for kernel in kernels)
  for number, stream in enumerate([*streams, "XLA Ops"]):
    parts.append(f'lines {{ id: {number} name: "{stream}"')
    derived = stream == "XLA Ops"
    parts += [
      _event(kernel, program_id)
      for kernel in kernels
      if derived or kernel.stream == stream
    ]
    parts.append("}")
  return "\n".join([*parts, "}"])


def _event(kernel: Kernel, program_id: int) -> str:
  details = (
    "regs:96 static_shared:0 dynamic_shared:82240"
    f" grid:{kernel.num_blocks},1,1 block:512,1,1 occ_pct:50.0"
  )
  return (
    f"events {{ metadata_id: 1 offset_ps: {round(kernel.begin_us * 1e6)}"
    f" duration_ps: {round(kernel.time_us * 1e6)}"
    f' stats {{ metadata_id: 1 str_value: "{kernel.op}" }}'
    ' stats { metadata_id: 2 str_value: "jit_step" }'
    f" stats {{ metadata_id: 3 uint64_value: {program_id} }}"
    f' stats {{ metadata_id: 4 str_value: "{details}" }} }}'
  )
