# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Integers of a partitioned module, as each device computes them.

XLA's partitioner writes one program for all devices, which finds its place by
arithmetic on `partition-id`: a multiple of it, a quotient and a remainder on a
mesh of several axes, or an entry of a constant table. Such a number is the same
every time, so it can be worked out here for all devices at once.

Only what depends on `partition-id` and on constants can be: a value that comes
from a parameter, such as a loop's counter, is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from lagom_xla.passes import hlo

_SAME_VALUE = frozenset(["bitcast", "convert", "copy", "reshape"])

# HLO divides towards zero and gives remainders the dividend's sign; negative
# numbers are left out, so NumPy's are the same.
_BINARY: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
  "add": np.add,
  "divide": np.floor_divide,
  "maximum": np.maximum,
  "minimum": np.minimum,
  "multiply": np.multiply,
  "remainder": np.remainder,
  "subtract": np.subtract,
}
_TYPES = frozenset(["s32", "s64", "u32", "u64"])
_KNOWN = _SAME_VALUE | _BINARY.keys() | {"clamp", "dynamic-slice"}


def scalar(
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  devices: Sequence[int],
) -> np.ndarray | None:
  """The value of an integer scalar on some devices.

  Args:
    computation: where the instruction stands.
    instruction: gives an array of one integer.
    devices: partition ids.

  Returns:
    One int64 per device; None where the value is not known.
  """
  ids = np.asarray(devices, np.int64)
  value = _evaluate(computation, instruction, ids, {})
  if value is None or value.size != len(devices):
    return None
  return value.reshape(-1)


def _evaluate(
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  devices: np.ndarray,
  known: dict[int, np.ndarray | None],
) -> np.ndarray | None:
  """Devices along the first axis, then the array's own shape."""
  if instruction.id not in known:
    known[instruction.id] = None
    value = _compute(computation, instruction, devices, known)
    # Inside these bounds no type of _TYPES wraps around.
    if value is not None and value.size and 0 <= value.min():
      known[instruction.id] = value if value.max() < 2**31 else None
  return known[instruction.id]


def _compute(
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  devices: np.ndarray,
  known: dict[int, np.ndarray | None],
) -> np.ndarray | None:
  if hlo.element_type(instruction.shape) not in _TYPES:
    return None
  shape = (len(devices), *instruction.shape.dimensions)
  match instruction.opcode:
    case "partition-id":
      return devices
    case "replica-id":  # JAX compiles one replica of many partitions.
      return np.zeros_like(devices)
    case "constant":
      return _constant(instruction, shape)
    case "iota" if len(shape) == 2:
      return np.broadcast_to(np.arange(shape[1]), shape)
    case opcode if opcode not in _KNOWN:
      return None
  operands = []
  for operand in computation.operands(instruction):
    value = _evaluate(computation, operand, devices, known)
    if value is None:
      return None
    operands.append(value)
  match instruction.opcode, operands:
    case "divide" | "remainder", [_, divisor] if not divisor.all():
      return None
    case opcode, [value] if opcode in _SAME_VALUE:
      return value.reshape(shape)
    case opcode, [left, right] if opcode in _BINARY:
      return _BINARY[opcode](left, right)
    case "clamp", [low, value, high]:
      return np.clip(value, low, high)
    case "dynamic-slice", [table, start] if table.ndim == 2:
      return _look_up(table, start, instruction.dynamic_slice_sizes[0])
  return None


def _look_up(table: np.ndarray, start: np.ndarray, size: int) -> np.ndarray:
  """A slice of a one-dimensional table; HLO moves it inside the bounds."""
  first = np.clip(start.reshape(-1), 0, table.shape[1] - size)
  return np.take_along_axis(table, first[:, None] + np.arange(size), axis=1)


def _constant(
  instruction: hlo.Instruction, shape: tuple[int, ...]
) -> np.ndarray | None:
  literal = instruction.literal
  for values in (literal.s32s, literal.s64s, literal.u32s, literal.u64s):
    if values and len(values) == int(np.prod(shape[1:], dtype=np.int64)):
      array = np.array(values, np.int64).reshape(shape[1:])
      return np.broadcast_to(array, shape)
  return None
