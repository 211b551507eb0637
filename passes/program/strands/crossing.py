# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The crossing between two stages: what the later takes from the earlier.

What crosses is kept from one trip to the next, as residuals of a forward pass
are. What costs next to nothing to compute again, such as a slice of the batch
or a constant, does not cross.
"""

from __future__ import annotations

from collections.abc import Set
import dataclasses

from jaxlib.mlir import ir

from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.strands import trip_body
from lagom_xla.passes.program.strands.trip_body import CARRY
from lagom_xla.passes.program.strands.trip_body import Item

# Operations that only move data or work on it exactly, so that the same comes
# out wherever XLA fuses them.
_CHEAP = frozenset(
  f"stablehlo.{name}"
  for name in (
    "broadcast_in_dim", "compare", "concatenate", "constant", "convert",
    "dynamic_slice", "iota", "maximum", "minimum", "pad", "partition_id",
    "reshape", "select", "slice", "transpose",
  )
)  # fmt: skip
# These are exact on integers.
_CHEAP_ON_INTEGERS = frozenset(
  f"stablehlo.{name}"
  for name in (
    "add", "and", "clamp", "divide", "multiply", "not", "or", "remainder",
    "subtract",
  )
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Crossing:
  """What the later stage takes from the earlier one.

  Attributes:
    items: values that are kept.
    again: positions of the earlier stage's operations that the later stage
      repeats for itself.
    num_bytes: size of what is kept.
  """

  items: tuple[Item, ...]
  again: frozenset[int]
  num_bytes: int


def between(
  body: trip_body.TripBody, ahead: Set[int], ahead_carries: Set[int]
) -> Crossing:
  """What crosses from the operations that run ahead to all others.

  Args:
    body: the body of the loop.
    ahead: positions of the operations that run ahead.
    ahead_carries: numbers of the carries that advance with them.
  """
  cheap: dict[int, bool] = {}

  def is_cheap(position: int) -> bool:
    if position not in cheap:
      cheap[position] = _is_cheap(body.operations[position]) and all(
        is_cheap(source)
        if source != CARRY
        else number in body.invariant or _is_scalar(body.value((CARRY, number)))
        for source, number in body.uses[position]
      )
    return cheap[position]

  todo = [
    item
    for position in range(len(body.operations))
    if position not in ahead
    for item in body.uses[position]
  ]
  todo += [
    item
    for carry, item in enumerate(body.returned)
    if item is not None and carry not in ahead_carries | body.invariant
  ]
  kept: set[Item] = set()
  again: set[int] = set()
  while todo:
    item = position, number = todo.pop()
    if position == CARRY:
      if number in ahead_carries:
        kept.add(item)
    elif position in ahead and position not in again:
      if is_cheap(position):
        again.add(position)
        todo.extend(body.uses[position])
      else:
        kept.add(item)
  return Crossing(
    items=tuple(sorted(kept)),
    again=frozenset(again),
    num_bytes=sum(mlir.num_bytes(body.value(item)) for item in kept),
  )


def _is_cheap(operation: ir.Operation) -> bool:
  if operation.name in _CHEAP:
    return True
  if operation.name not in _CHEAP_ON_INTEGERS:
    return False
  element = ir.RankedTensorType(operation.results[0].type).element_type
  return isinstance(element, ir.IntegerType)


def _is_scalar(value: ir.Value) -> bool:
  return ir.RankedTensorType(value.type).rank == 0
