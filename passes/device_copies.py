# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Device copies: what a step moves within its GPU's memory beside kernels.

From JAX 0.11 on, XLA starts slices of loops ahead: a fusion that does no more
than cut a contiguous slice from an array, or write one into it, stands in an
`async-start` / `async-done` pair (XLA's dynamic_slice_copy_fusion_async_wrapper
.cc). At run time it is no kernel but a memcpy, on one of the additional streams
of execution_stream_assignment.cc. `copy-start` / `copy-done` of a whole array
within the GPU's memory are the same.

Those in flight share the memory's rate, so side by side they end no sooner than
one after the other, and are taken to follow each other on one stream.

Other work in an `async-start`, which only a program that names its streams has,
is taken for kernels of the compute stream.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
import dataclasses
from typing import ClassVar

from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes import host_copies

STREAM = "on device"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class DeviceCopy:
  """One copy within a GPU's memory that runs beside kernels.

  Attributes:
    name: name of the instruction that starts it.
    computation: name of the computation that it stands in.
    start_id: id of the instruction that starts it.
    done_id: id of the instruction that waits for it; None where it holds the
      compute stream.
    num_bytes: bytes that it moves: each is read once and written once.
    stream: copies of one stream follow one another.
    executions: times it runs per step.
    is_bound_by_memory: always.
  """

  is_bound_by_memory: ClassVar[bool] = True

  name: str
  computation: str
  start_id: int
  done_id: int | None
  num_bytes: int
  stream: str = STREAM
  executions: int


def find(
  module: hlo.Module, *, apart: Collection[int]
) -> Mapping[int, DeviceCopy]:
  """The device copies of a module that run, by the id of what starts them.

  Args:
    module: scheduled.
    apart: ids of instructions that start something else: collectives, and
      copies to and from the host.
  """
  return {
    copy.start_id: copy
    for computation_id in module.executions
    if computation_id not in module.wrapped
    for copy in _in_computation(
      module, module.computations[computation_id], apart
    )
  }


def _in_computation(
  module: hlo.Module, computation: hlo.Computation, apart: Collection[int]
) -> Iterator[DeviceCopy]:
  if computation.opcodes.isdisjoint(("async-start", "copy-start")):
    return
  awaiting = dependencies.awaiting_of(computation)
  for start in computation.instructions:
    moved = None if start.id in apart else _moved(module, start)
    if moved is not None:
      done = awaiting.get(start.id)
      yield DeviceCopy(
        name=start.name,
        computation=computation.name,
        start_id=start.id,
        done_id=done.id if done is not None else None,
        num_bytes=hlo.shape_bytes(moved),
        executions=module.executions[computation.id],
      )


def _moved(module: hlo.Module, start: hlo.Instruction) -> hlo.Shape | None:
  """What an instruction starts to copy, if that is all it does."""
  match start.opcode:
    case "copy-start":  # (destination, source, context)
      return start.shape.tuple_shapes[0]
    case "async-start":
      return slice_of(module, start)
  return None


def slice_of(module: hlo.Module, start: hlo.Instruction) -> hlo.Shape | None:
  """The slice that an async-start cuts or writes, if that is all it does."""
  if start.opcode != "async-start":
    return None
  called = module.computations[start.called_computation_ids[0]]
  if called.root.opcode != "fusion":
    return None
  (fused_id,) = called.root.called_computation_ids
  return _moved_by(module.computations[fused_id])


def _moved_by(fused: hlo.Computation) -> hlo.Shape | None:
  """The slice that a fusion cuts or writes, if that is all it does."""
  if not host_copies.only_moves(fused):
    return None
  root = fused.behind(fused.root, ("bitcast", "reshape"))
  match root.opcode:
    case "dynamic-slice" | "slice":
      return root.shape
    case "dynamic-update-slice":
      return fused.operands(root)[1].shape
  return None
