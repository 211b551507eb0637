# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Copies of a module that run beside the compute stream.

XLA marks arrays in host memory by memory space 5 in their layout, S(5) in text,
and moves them with copy engines: by `copy-start` / `copy-done` for a whole
array, all on one stream; by an `async-start` / `async-done` pair around a slice
out of a stack or into it, as in loops, on one stream per direction; or by the
same instructions without a start, which block the compute stream.

From JAX 0.11 on, XLA also starts slices within GPU memory ahead in loops, as
memcpys of fusions that only move a slice (XLA's
dynamic_slice_copy_fusion_async_wrapper.cc). Those in flight share the memory
bandwidth with each other and with `copy-start` of whole arrays, so they are
modeled as one stream. Other work in an `async-start` counts as kernels on the
compute stream.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
import dataclasses

from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo

# Layout::kHostMemorySpace of XLA.
_HOST = 5

# Instructions allowed in a fusion that only moves an array.
_NO_WORK = frozenset([
  "bitcast", "constant", "copy", "dynamic-slice", "dynamic-update-slice",
  "fusion", "parameter", "reshape", "slice",
])  # fmt: skip


STREAM = "on device"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Copy:
  """A copy beside the compute stream.

  Attributes:
    name: name of the instruction that starts it.
    computation: name of the computation that holds it.
    start_id: id of the instruction that starts it.
    done_id: id of the instruction that waits for it; None if the copy blocks
      the compute stream.
    num_bytes: bytes that it moves.
    stream: its stream; copies on one stream run one after another.
    executions: times it runs per step.
    to_host: True for a copy to the host, False for one from it; None for one
      within GPU memory, which reads and writes each byte once.
  """

  name: str
  computation: str
  start_id: int
  done_id: int | None
  num_bytes: int
  stream: str
  executions: int
  to_host: bool | None

  @property
  def is_bound_by_memory(self) -> bool:
    """Whether GPU memory limits it, not the link to the host."""
    return self.to_host is None


def find(module: hlo.Module, *, apart: Collection[int]) -> Mapping[int, Copy]:
  """The copies that a scheduled module runs, by the id of their start.

  Copies to and from the host come first. `apart` has the ids of instructions
  that start something else, such as collectives.
  """
  with_host: dict[int, Copy] = {}
  on_device: dict[int, Copy] = {}
  for computation in module.sequences:
    awaiting: Mapping[int, hlo.Instruction] | None = None
    for start in computation.instructions:
      to_host, stream = None, STREAM
      if move := _host_move(module, computation, start):
        shape, to_host = move
        stream = "to host" if to_host else "to device"
        if start.opcode == "copy-start":
          stream = "both ways"
      elif start.id in apart:
        continue
      elif start.opcode == "copy-start":  # (destination, source, context)
        shape = start.shape.tuple_shapes[0]
      elif (shape := slice_of(module, start)) is None:
        continue
      if awaiting is None:
        awaiting = dependencies.awaiting_of(computation)
      done = awaiting.get(start.id)
      found = on_device if to_host is None else with_host
      found[start.id] = Copy(
        name=start.name,
        computation=computation.name,
        start_id=start.id,
        done_id=done.id if done is not None else None,
        num_bytes=hlo.shape_bytes(shape),
        stream=stream,
        executions=module.executions[computation.id],
        to_host=to_host,
      )
  return with_host | on_device


def is_on_host(shape: hlo.Shape) -> bool:
  """Whether an array is in the host's memory."""
  return shape.layout.memory_space == _HOST


def put_on_host(shape: hlo.Shape) -> None:
  """Places an array in the host's memory."""
  shape.layout.memory_space = _HOST


def slice_of(module: hlo.Module, start: hlo.Instruction) -> hlo.Shape | None:
  """The slice that an async-start reads or writes, if it does nothing else."""
  if start.opcode != "async-start":
    return None
  called = module.computations[start.called_computation_ids[0]]
  if called.root.opcode != "fusion":
    return None
  fused = module.computations[called.root.called_computation_ids[0]]
  if _only_moves(fused):
    root = fused.behind(fused.root, ("bitcast", "reshape"))
    match root.opcode:
      case "dynamic-slice" | "slice":
        return root.shape
      case "dynamic-update-slice":
        return fused.operands(root)[1].shape
  return None


def _only_moves(called: hlo.Computation) -> bool:
  """Whether a fusion or an async computation computes no array."""
  return not any(
    i.opcode not in _NO_WORK and i.shape.dimensions for i in called.instructions
  )


def _host_move(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
) -> tuple[hlo.Shape, bool] | None:
  """The shape that an instruction moves, and whether it moves to the host.

  None if the instruction does anything else.
  """
  match instruction.opcode:
    case "copy-start":  # (destination, source, context)
      destination, source, *_ = instruction.shape.tuple_shapes
      moved = destination
    case "copy" | "dynamic-slice" | "slice":
      source = computation.operands(instruction)[0].shape
      moved = destination = instruction.shape
    case "dynamic-update-slice":
      moved = source = computation.operands(instruction)[1].shape
      destination = instruction.shape
    case "async-start" | "fusion":
      shapes = [o.shape for o in computation.operands(instruction)]
      shapes += instruction.shape, *instruction.shape.tuple_shapes
      if any(map(is_on_host, shapes)):
        called = module.computations[instruction.called_computation_ids[0]]
        if _only_moves(called):
          moves = (_host_move(module, called, i) for i in called.instructions)
          return next(filter(None, moves), None)
      return None
    case _:
      return None
  to_host = is_on_host(destination)
  return None if to_host == is_on_host(source) else (moved, to_host)
