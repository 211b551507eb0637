# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Digests that are equal for schedules with the same kernels and overlaps.

They ignore names, ids, source lines, the values of constants, the offsets of
slices, and the order of kernels between two starts, dones or loops. XLA breaks
ties among equals by information that a module on disk lacks
(`compile/fused.py`); the step takes equally long either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
import functools
import hashlib
import marshal

from lagom_xla.passes import hlo
from lagom_xla.passes import hlo_pb2

# Fixed, because later versions of marshal may encode equal contents
# differently.
_VERSION = 2
# Opcodes that run no kernel.
_FREE = frozenset([
  "after-all", "bitcast", "constant", "get-tuple-element", "opt-barrier",
  "parameter", "tuple",
])  # fmt: skip
# Ends of opcodes between which the order of kernels is ignored.
_ENDS = ("-start", "-update", "-done")
_ALONE = frozenset(["call", "conditional", "recv", "send", "while"])


def of(module: hlo_pb2.HloModuleProto) -> str:
  """A hash of the kernels and overlaps of a scheduled module.

  In each computation that runs as a sequence, it covers the order of
  asynchronous starts and dones, loops and calls, and the kernels between each
  of these and the next.
  """
  return _of(module, has_order=True)


def of_content(module: hlo_pb2.HloModuleProto) -> str:
  """A hash of the instructions of a scheduled module, in any order."""
  return _of(module, has_order=False)


def _of(proto: hlo_pb2.HloModuleProto, *, has_order: bool) -> str:
  module = hlo.Module(proto)
  found: dict[int, bytes] = {}
  for id_, computation in module.computations.items():  # Callees come first.
    if id_ not in module.executions:
      found[id_] = _digest(_as_written(computation, found))
      continue
    contents = _contents(computation.instructions, found)
    found[id_] = _digest(
      _as_scheduled(contents)
      if has_order
      else sorted(content for _, content in contents)
    )
  digest = hashlib.sha256(found[module.entry.id])
  rest = hlo_pb2.HloModuleProto(
    input_output_alias=proto.input_output_alias,
    buffer_donor=proto.buffer_donor,
    payloads=proto.payloads,
  )
  digest.update(rest.SerializeToString(deterministic=True))
  return digest.hexdigest()


def _digest(parts: Iterable[bytes]) -> bytes:
  digest = hashlib.sha256()
  for part in parts:
    digest.update(hashlib.sha256(part).digest())
  return digest.digest()


def _as_scheduled(
  contents: Iterable[tuple[hlo.Instruction, bytes]],
) -> Iterator[bytes]:
  """Starts, dones and loops in order, with the sorted kernels in between."""
  started: dict[int, int] = {}
  kernels: list[bytes] = []
  for instruction, content in contents:
    opcode = instruction.opcode
    if not (opcode in _ALONE or opcode.endswith(_ENDS)):
      kernels.append(content)
      continue
    yield from sorted(kernels)
    kernels.clear()
    begun = [started[i] for i in instruction.operand_ids if i in started]
    started[instruction.id] = len(started)
    yield b"%s %s" % (content, repr(begun).encode())
  yield from sorted(kernels)


def _contents(
  ordered: Sequence[hlo.Instruction], called: Mapping[int, bytes]
) -> Iterator[tuple[hlo.Instruction, bytes]]:
  """The instructions of a computation that run, and their contents."""
  arrays = {i.id: _arrays(i.shape) for i in ordered}
  for instruction in ordered:
    if instruction.opcode not in _FREE:
      operands = tuple(
        sorted(a for i in instruction.operand_ids for a in arrays[i])
      )
      result = arrays[instruction.id]
      yield instruction, _content(instruction, operands, result, called)


def _as_written(
  computation: hlo.Computation, called: Mapping[int, bytes]
) -> Iterator[bytes]:
  """The contents of a kernel or of a reduction."""
  position = {i.id: n for n, i in enumerate(computation.proto.instructions)}
  for instruction in computation.proto.instructions:
    operands = tuple(b"%d" % position[i] for i in instruction.operand_ids)
    yield _content(instruction, operands, _arrays(instruction.shape), called)
  yield b"%d" % position[computation.root.id]


def _arrays(shape: hlo_pb2.ShapeProto) -> tuple[bytes, ...]:
  """The arrays of a shape, sorted, because a collective has them in any order.

  Layouts are ignored, because they matter only inside a kernel.
  """
  return _arrays_of(shape.SerializeToString())


# Modules have thousands of instructions, but few shapes.
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
  instruction: hlo.Instruction,
  operands: tuple[bytes, ...],
  result: tuple[bytes, ...],
  called: Mapping[int, bytes],
) -> bytes:
  """The contents of an instruction, without its own and other names."""
  content = hlo.Instruction()
  content.CopyFrom(instruction)
  # When XLA reads a library call from a module on disk, it drops a precision
  # that is DEFAULT for all operands.
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
