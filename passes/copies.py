# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Copies of a module: what moves arrays on streams beside that of kernels.

JAX offloads with `jax.device_put` to pinned_host and with the offloading
policies of `jax.checkpoint`. XLA gives such arrays memory space 5 in their
layout, S(5) in text, and moves them in one of these forms:

- `copy-start` / `copy-done` of a whole array;
- an `async-start` / `async-done` pair around a dynamic-slice out of a stack of
  arrays on the host or a dynamic-update-slice into it, as loops have them;
- the same plain, which holds the compute stream.

None is a kernel: the GPU's copy engines move the bytes.

XLA puts all `copy-start`s of a module on one stream of their own, whichever way
they go (its stream annotator gives them one operation queue). Of slices, those
of each direction are taken to follow one another.

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

from collections.abc import Callable, Collection, Mapping
import dataclasses
import functools
from typing import ClassVar, TypeVar

from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo

# Layout::kHostMemorySpace of XLA.
_HOST = 5

# What may stand in a fusion that only moves an array.
_NO_WORK = frozenset(
  [
    "bitcast",
    "constant",
    "copy",
    "dynamic-slice",
    "dynamic-update-slice",
    "fusion",
    "parameter",
    "reshape",
    "slice",
  ]
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Copy:
  """A copy on a stream beside that of kernels.

  Attributes:
    name: name of the instruction that starts it.
    computation: name of the computation that it stands in.
    start_id: id of the instruction that starts it.
    done_id: id of the instruction that waits for it; None where it holds the
      compute stream.
    num_bytes: bytes that it moves.
    stream: copies of one stream follow one another.
    executions: times it runs per step.
    is_bound_by_memory: whether by the GPU's memory, or by the link to the host.
  """

  is_bound_by_memory: ClassVar[bool]

  name: str
  computation: str
  start_id: int
  done_id: int | None
  num_bytes: int
  stream: str
  executions: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class HostCopy(_Copy):
  """One copy between a GPU and its host's memory.

  Attributes:
    to_host: whether it goes to the host, or comes from there.
  """

  is_bound_by_memory: ClassVar[bool] = False

  to_host: bool


STREAM = "on device"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class DeviceCopy(_Copy):
  """One copy within a GPU's memory: each byte is read once and written once."""

  is_bound_by_memory: ClassVar[bool] = True

  stream: str = STREAM


Copy = HostCopy | DeviceCopy
_Made = TypeVar("_Made", HostCopy, DeviceCopy)
_Move = tuple[hlo.Shape, bool]  # What moves, and whether to the host.


def find(module: hlo.Module, *, apart: Collection[int]) -> Mapping[int, Copy]:
  """The copies of a module that run, by the id of what starts them.

  Args:
    module: scheduled.
    apart: ids of instructions that start something else, such as collectives.
  """
  on_host = find_host_copies(module)

  def moved(
    unused_computation: hlo.Computation, start: hlo.Instruction
  ) -> tuple[hlo.Shape, Callable[..., DeviceCopy]] | None:
    if start.id in apart or start.id in on_host:
      return None
    shape = slice_of(module, start)
    if start.opcode == "copy-start":  # (destination, source, context)
      shape = start.shape.tuple_shapes[0]
    return None if shape is None else (shape, DeviceCopy)

  return {**on_host, **_find(module, moved)}


def find_host_copies(module: hlo.Module) -> Mapping[int, HostCopy]:
  """The host copies of a module that run, by the id of what starts them."""

  def moved(
    computation: hlo.Computation, start: hlo.Instruction
  ) -> tuple[hlo.Shape, Callable[..., HostCopy]] | None:
    move = _move(module, computation, start)
    if move is None:
      return None
    shape, to_host = move
    stream = "to host" if to_host else "to device"
    if start.opcode == "copy-start":
      stream = "both ways"
    return shape, functools.partial(HostCopy, to_host=to_host, stream=stream)

  return _find(module, moved)


def _find(
  module: hlo.Module,
  moved: Callable[
    [hlo.Computation, hlo.Instruction],
    tuple[hlo.Shape, Callable[..., _Made]] | None,
  ],
) -> dict[int, _Made]:
  """The copies of what `moved` says that instructions move."""
  found: dict[int, _Made] = {}
  for computation_id, executions in module.executions.items():
    if computation_id in module.wrapped:
      continue
    computation = module.computations[computation_id]
    moves = [
      (start, *move)
      for start in computation.instructions
      if (move := moved(computation, start))
    ]
    awaiting = dependencies.awaiting_of(computation) if moves else {}
    for start, shape, make in moves:
      done = awaiting.get(start.id)
      found[start.id] = make(
        name=start.name,
        computation=computation.name,
        start_id=start.id,
        done_id=done.id if done is not None else None,
        num_bytes=hlo.shape_bytes(shape),
        executions=executions,
      )
  return found


def awaited(found: Mapping[int, Copy]) -> Mapping[int, Copy]:
  """Those that are waited for, by the id of the instruction that does."""
  return {c.done_id: c for c in found.values() if c.done_id is not None}


def is_on_host(shape: hlo.Shape) -> bool:
  """Whether an array is in the host's memory."""
  return shape.layout.memory_space == _HOST


def put_on_host(shape: hlo.Shape) -> None:
  """Has an array be in the host's memory."""
  shape.layout.memory_space = _HOST


def only_moves(called: hlo.Computation) -> bool:
  """Whether a fusion or an async computation computes no array."""
  return not any(
    i.opcode not in _NO_WORK and i.shape.dimensions for i in called.instructions
  )


def _move(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
) -> _Move | None:
  """What an instruction moves to or from a host, if that is all it does."""
  match instruction.opcode:
    case "copy-start":  # (destination, source, context)
      destination, source, *_ = instruction.shape.tuple_shapes
      return _between(source, destination, destination)
    case "async-start" | "fusion":
      if not _touches_host(computation, instruction):
        return None
      called = module.computations[instruction.called_computation_ids[0]]
      return _move_inside(module, called)
    case "copy" | "dynamic-slice" | "slice":
      (source, *_) = computation.operands(instruction)
      return _between(source.shape, instruction.shape, instruction.shape)
    case "dynamic-update-slice":
      _, update, *_ = computation.operands(instruction)
      return _between(update.shape, instruction.shape, update.shape)
  return None


def _touches_host(
  computation: hlo.Computation, instruction: hlo.Instruction
) -> bool:
  """Whether it takes an array on the host, or makes one."""
  taken = (o.shape for o in computation.operands(instruction))
  made = (instruction.shape, *instruction.shape.tuple_shapes)
  return any(is_on_host(shape) for shape in (*taken, *made))


def _move_inside(module: hlo.Module, called: hlo.Computation) -> _Move | None:
  """What a fusion or an async computation moves."""
  if not only_moves(called):
    return None
  moves = (_move(module, called, i) for i in called.instructions)
  return next(filter(None, moves), None)


def _between(
  source: hlo.Shape, destination: hlo.Shape, moved: hlo.Shape
) -> _Move | None:
  to_host = is_on_host(destination)
  return None if to_host == is_on_host(source) else (moved, to_host)


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
  if not only_moves(fused):
    return None
  root = fused.behind(fused.root, ("bitcast", "reshape"))
  match root.opcode:
    case "dynamic-slice" | "slice":
      return root.shape
    case "dynamic-update-slice":
      return fused.operands(root)[1].shape
  return None
