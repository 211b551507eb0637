# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Digests: what schedules share that run the same kernels beside the same.

Names, ids and source lines do not count, nor the values of constants and where
in an array a slice begins, nor which of several kernels between two starts,
dones or loops comes first: XLA breaks ties among equals by what a module that
was written down does not tell (`compile/fused.py`), and a step takes as long
either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import functools
import hashlib
import marshal

from lagom_xla.passes import hlo_pb2

# Instructions whose computations are scheduled, and run one by one.
_CALLING = frozenset(["async-start", "call", "conditional", "while"])


def running_computations(module: hlo_pb2.HloModuleProto) -> set[int]:
  """The computations that are no part of a kernel or a reduction, by id."""
  by_id = {computation.id: computation for computation in module.computations}
  found: set[int] = set()
  waiting = [module.entry_computation_id]
  while waiting:
    computation_id = waiting.pop()
    if computation_id in found:
      continue
    found.add(computation_id)
    for instruction in by_id[computation_id].instructions:
      if instruction.opcode in _CALLING:
        waiting += instruction.called_computation_ids
  return found


def in_order(
  module: hlo_pb2.HloModuleProto, computation: hlo_pb2.HloComputationProto
) -> list[hlo_pb2.HloInstructionProto]:
  """A computation's instructions, as scheduled where they are."""
  sequences = module.schedule.sequences
  if computation.id not in sequences:
    return list(computation.instructions)
  by_id = {i.id: i for i in computation.instructions}
  return [by_id[i] for i in sequences[computation.id].instruction_ids]


_Computation = hlo_pb2.HloComputationProto
_Instruction = hlo_pb2.HloInstructionProto
_Module = hlo_pb2.HloModuleProto
_PartsOf = Callable[
  [Sequence[_Instruction], Mapping[int, bytes]], Iterable[bytes]
]

# Of marshal: in later ones equal contents may differ in bytes, by identity.
_VERSION = 2
# What no kernel runs for.
_FREE = frozenset(
  [
    "after-all",
    "bitcast",
    "constant",
    "get-tuple-element",
    "opt-barrier",
    "parameter",
    "tuple",
  ]
)
# What the kernels of a computation are told apart by.
_ENDS = ("-start", "-update", "-done")
_ALONE = frozenset(["call", "conditional", "recv", "send", "while"])


def of(module: _Module) -> str:
  """A hash of what runs in a scheduled module, and beside what.

  In each computation that is run one instruction at a time it knows the order
  of asynchronous starts and dones, loops and calls, and which kernels run
  between one of these and the next.
  """
  return _of(module, _as_scheduled)


def of_content(module: _Module) -> str:
  """A hash of what runs in a scheduled module, in whatever order."""
  return _of(module, _in_any_order)


def _of(module: _Module, parts_of: _PartsOf) -> str:
  found: dict[int, bytes] = {}
  by_itself = running_computations(module)
  for computation in module.computations:  # What is called comes first.
    if computation.id in by_itself:
      ordered = in_order(module, computation)
      found[computation.id] = _digest(parts_of(ordered, found))
    else:
      found[computation.id] = _of_kernel(computation, found)
  digest = hashlib.sha256(found[module.entry_computation_id])
  digest.update(_of_the_rest(module))
  return digest.hexdigest()


def _digest(parts: Iterable[bytes]) -> bytes:
  digest = hashlib.sha256()
  for part in parts:
    digest.update(hashlib.sha256(part).digest())
  return digest.digest()


def _of_kernel(computation: _Computation, called: Mapping[int, bytes]) -> bytes:
  """What a kernel or a reduction does, found once for all modules with it."""
  written = computation.SerializeToString()
  inside = (called[id_] for id_ in _called_ids(computation))
  key = hashlib.sha256(b"".join((written, *inside))).digest()
  known = _known.get(key)
  if known is None:
    if len(_known) >= _MAX_KNOWN:
      _known.clear()
    known = _known[key] = _digest(_as_written(computation, called))
  return known


def _called_ids(computation: _Computation) -> Iterator[int]:
  for instruction in computation.instructions:
    yield from instruction.called_computation_ids


# By what XLA wrote, which modules from one fused module have in common.
_known: dict[bytes, bytes] = {}
_MAX_KNOWN = 65_536


def _of_the_rest(module: _Module) -> bytes:
  rest = _Module(
    input_output_alias=module.input_output_alias,
    buffer_donor=module.buffer_donor,
    payloads=module.payloads,
  )
  return rest.SerializeToString(deterministic=True)


def _as_scheduled(
  ordered: Sequence[_Instruction], called: Mapping[int, bytes]
) -> Iterator[bytes]:
  """Starts, dones and loops in order, and what kernels run in between."""
  started: dict[int, int] = {}
  kernels: list[bytes] = []
  for instruction, content in _contents(ordered, called):
    if not _stands_alone(instruction.opcode):
      kernels.append(content)
      continue
    yield from sorted(kernels)
    kernels.clear()
    begun = [started[i] for i in instruction.operand_ids if i in started]
    started[instruction.id] = len(started)
    yield b"%s %s" % (content, repr(begun).encode())
  yield from sorted(kernels)


def _in_any_order(
  ordered: Sequence[_Instruction], called: Mapping[int, bytes]
) -> list[bytes]:
  return sorted(content for _, content in _contents(ordered, called))


def _contents(
  ordered: Sequence[_Instruction], called: Mapping[int, bytes]
) -> Iterator[tuple[_Instruction, bytes]]:
  """What runs of a computation, and what it does."""
  arrays = {i.id: _arrays(i.shape) for i in ordered}
  for instruction in ordered:
    if instruction.opcode not in _FREE:
      operands = tuple(
        sorted(a for i in instruction.operand_ids for a in arrays[i])
      )
      result = arrays[instruction.id]
      yield instruction, _content(instruction, operands, result, called)


def _as_written(
  computation: _Computation, called: Mapping[int, bytes]
) -> Iterator[bytes]:
  """What a kernel computes, or a reduction."""
  position = {i.id: n for n, i in enumerate(computation.instructions)}
  for instruction in computation.instructions:
    operands = tuple(b"%d" % position[i] for i in instruction.operand_ids)
    yield _content(instruction, operands, _arrays(instruction.shape), called)
  yield b"%d" % position[computation.root_id]


def _stands_alone(opcode: str) -> bool:
  return opcode in _ALONE or opcode.endswith(_ENDS)


def _arrays(shape: hlo_pb2.ShapeProto) -> tuple[bytes, ...]:
  """The arrays of a shape; in a collective of several any may be the first.

  Their layouts do not count: what a kernel does with them is inside it.
  """
  return _arrays_of(shape.SerializeToString())


# Modules have thousands of instructions, and few shapes.
@functools.lru_cache(maxsize=10_000)
def _arrays_of(serialized: bytes) -> tuple[bytes, ...]:
  found: list[bytes] = []
  waiting = [hlo_pb2.ShapeProto.FromString(serialized)]
  while waiting:
    shape = waiting.pop()
    waiting += shape.tuple_shapes
    if not shape.tuple_shapes:
      found.append(repr((shape.element_type, list(shape.dimensions))).encode())
  return tuple(sorted(found))


def _content(
  instruction: _Instruction,
  operands: tuple[bytes, ...],
  result: tuple[bytes, ...],
  called: Mapping[int, bytes],
) -> bytes:
  """What an instruction does, whatever it and others are called."""
  content = _Instruction()
  content.CopyFrom(instruction)
  # What is DEFAULT for all operands is gone once XLA has read a library call
  # from a module that it wrote down.
  if content.HasField("precision_config"):
    precision = content.precision_config
    if not any(precision.operand_precision):
      precision.ClearField("operand_precision")
  for field in (
    "called_computation_ids",
    "channel_id",
    "control_predecessor_ids",
    "id",
    "literal",
    "metadata",
    "name",
    "operand_ids",
    "shape",
    "slice_dimensions",
  ):
    content.ClearField(field)
  parts = (
    content.SerializeToString(deterministic=True),
    operands,
    result,
    [called[i] for i in instruction.called_computation_ids],
  )
  return marshal.dumps(parts, _VERSION)
