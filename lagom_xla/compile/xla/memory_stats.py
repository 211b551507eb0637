# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Memory statistics, of executables and of XLA's assignments of buffers."""

from __future__ import annotations

from typing import Any

from lagom_xla.passes import hlo_pb2

# HeapSimulatorTrace.Event.Kind of XLA.
_ALLOC, _FREE, _SHARE_WITH = 0, 1, 2


def peak_bytes(memory: Any) -> int:
  """Peak device memory of a `CompiledMemoryStats`."""
  peak = getattr(memory, "peak_memory_in_bytes", 0)
  return peak or (
    memory.argument_size_in_bytes
    + memory.output_size_in_bytes
    - memory.alias_size_in_bytes
    + memory.temp_size_in_bytes
  )


def peak_bytes_of(assignment: hlo_pb2.BufferAssignmentProto) -> int:
  """Peak device memory of an assignment of buffers.

  As XLA counts `peak_memory_in_bytes` (ComputePeakMemory in
  xla/service/buffer_assignment.cc): what is there all the time, which is
  arguments, constants and results, and on top of that what is live at once.
  """
  sizes = {b.id: b.size for b in assignment.logical_buffers}
  uses = dict.fromkeys(_there_all_the_time(assignment, sizes), 1)
  now = peak = sum(sizes[id_] for id_ in uses)
  shared: dict[int, int] = {}  # A buffer -> the one whose memory it is in.
  for trace in assignment.heap_simulator_traces:
    for event in trace.events:
      if event.kind == _SHARE_WITH:
        held = _held(event.share_with_canonical_id, shared)
        shared[event.buffer_id] = held
      elif event.kind == _FREE:
        held = _held(event.buffer_id, shared)
        shared.pop(event.buffer_id, None)
      else:
        held = event.buffer_id
      before = uses.get(held, 0)
      uses[held] = before + (-1 if event.kind == _FREE else 1)
      now += sizes[held] * ((uses[held] > 0) - (before > 0))
      peak = max(peak, now)
  return peak


def _there_all_the_time(
  assignment: hlo_pb2.BufferAssignmentProto, sizes: dict[int, int]
) -> list[int]:
  """The largest buffer of each allocation that lasts for the whole step."""
  found = []
  for allocation in assignment.buffer_allocations:
    lasts = (
      allocation.is_entry_computation_parameter
      or allocation.is_constant
      or allocation.maybe_live_out
    )
    if lasts and not allocation.is_thread_local:
      ids = [a.logical_buffer_id for a in allocation.assigned]
      found += [max(ids, key=sizes.__getitem__)] if ids else []
  return found


def _held(buffer_id: int, shared: dict[int, int]) -> int:
  """The buffer whose memory one is in."""
  while buffer_id in shared:
    buffer_id = shared[buffer_id]
  return buffer_id
