# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The streams of XLA's scheduler: what may be in flight at the same time.

Collectives share one stream, asynchronous copies and computations another,
sends and receives a third. A start puts something on its stream and the done
takes it off; loops, calls and branches need as much of the stream as is in
flight inside them. Of slices that XLA moves within the GPU's memory, as it does
from JAX 0.11 on, any number may be in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
import dataclasses

from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import copies
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo

# Instructions that run other computations.
CONTROL_FLOW = ("while", "conditional", "call")

_COLLECTIVES = "collectives"
_COMPUTE = "compute"
_SLICES = "slices"
_POINT_TO_POINT = "point-to-point"
# DebugOptions' default of parallel_async_compute_limit, and kNumAsyncMemcpy and
# kNumAsyncCollectivesP2P of xla/service/gpu/gpu_latency_hiding_scheduler.cc.
_NUM_ASYNC_COMPUTE = 2
_NUM_SLICES = 2**31 - 1
_NUM_POINT_TO_POINT = 4


def limits(num_collectives: int) -> Mapping[str, int]:
  """What may be in flight on each stream."""
  return {
    _COLLECTIVES: num_collectives,
    _COMPUTE: _NUM_ASYNC_COMPUTE,
    _SLICES: _NUM_SLICES,
    _POINT_TO_POINT: _NUM_POINT_TO_POINT,
  }


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
  """The stream that an instruction occupies, and how much of it.

  Attributes:
    stream: name of the stream; "" where it is none.
    num_needed: what must be free on it for the instruction to go: 1 for a
      done, more for a loop, 0 for a start.
    is_start: whether something is in flight on it after the instruction.
    is_done: whether something is in flight on it before the instruction.
    is_async: whether the scheduler takes it for asynchronous.
  """

  stream: str = ""
  num_needed: int = 0
  is_start: bool = False
  is_done: bool = False
  is_async: bool = True


NO_USAGE = Usage()


class Streams:
  """Which streams the instructions of a computation occupy.

  Attributes:
    graph: the computation's dependences.
  """

  def __init__(
    self,
    module: hlo.Module,
    computation: hlo.Computation,
    num_in_flight: Mapping[int, int],
  ):
    self.graph = dependencies.of(computation)
    self._module = module
    self._num_in_flight = num_in_flight
    self._stream_of: dict[int, str] = {}
    self._own_kernels: set[int] = set()
    for start_id, done_id in self.graph.done_of.items():
      start = computation.by_id[start_id]
      stream = _stream(module, start)
      if is_own_kernel(module, start):
        stream = _COMPUTE
        self._own_kernels |= {start_id, done_id}
      self._stream_of[start_id] = self._stream_of[done_id] = stream

  @property
  def has_pairs(self) -> bool:
    """Whether anything starts in the computation and is waited for there."""
    return bool(self._stream_of)

  def usage(self, instruction: hlo.Instruction) -> Usage:
    """What an instruction occupies."""
    stream = self._stream_of.get(instruction.id)
    if stream is not None:
      is_start = instruction.id in self.graph.done_of
      return Usage(
        stream=stream,
        num_needed=0 if is_start else 1,
        is_start=is_start,
        is_done=not is_start,
        is_async=instruction.id not in self._own_kernels,
      )
    num_inside = self._num_inside(instruction)
    if not num_inside:
      return NO_USAGE
    return Usage(stream=_COLLECTIVES, num_needed=num_inside)

  def most_in_flight(self, order: Iterable[hlo.Instruction]) -> int:
    """Collectives in flight at once, at most, those of callees included."""
    num_now = most = 0
    for instruction in order:
      id_ = instruction.id
      if self._stream_of.get(id_) == _COLLECTIVES:
        num_now += 1 if id_ in self.graph.done_of else -1
        most = max(most, num_now)
      elif instruction.opcode in CONTROL_FLOW:
        most = max(most, num_now + self._num_inside(instruction))
    return most

  def _num_inside(self, instruction: hlo.Instruction) -> int:
    if instruction.opcode not in CONTROL_FLOW:
      return 0
    return max(
      self._num_in_flight.get(id_, 0)
      for id_ in instruction.called_computation_ids
    )


def _stream(module: hlo.Module, start: hlo.Instruction) -> str:
  if start.opcode in ("send", "recv"):
    return _POINT_TO_POINT
  is_collective = collectives_lib.kind_of(start) is not None
  if is_collective or collectives_lib.payloads(module, start):
    return _COLLECTIVES
  return _SLICES if _is_slice(module, start) else _COMPUTE


def is_own_kernel(module: hlo.Module, start: hlo.Instruction) -> bool:
  """Whether a start runs a collective that is one of XLA's own kernels.

  From JAX 0.12 on that is a fusion, which is no asynchronous one for the
  scheduler (IsGpuAsyncStart in gpu_latency_hiding_scheduler.cc).
  """
  return start.opcode == "async-start" and any(
    computation.id not in start.called_computation_ids
    for computation, _ in collectives_lib.payloads(module, start)
  )


def _is_slice(module: hlo.Module, start: hlo.Instruction) -> bool:
  """Whether a start moves a slice within the GPU's memory."""
  if copies.slice_of(module, start) is None:
    return False
  called = module.computations[start.called_computation_ids[0]]
  return not any(copies.is_on_host(i.shape) for i in called.instructions)
