# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stages of a loop over micro-batches: what can run one trip ahead.

Dependences among products (dots and loops with dots) show the forward pass: it
is everything that all last products of a trip need. Last products, which no
other product needs, are gradients of weights. Through the loss, each of them
needs the whole forward pass, but no recomputed values. The stage that runs
ahead is the forward pass or a first part of it, with everything that it needs,
including values from the trip before through the loop's carries. The best part
has the most work side by side, in inner loops of both stages that can merge, or
if there are none, in products of both; among equals, the one with the fewest
bytes to carry over. Values that are cheap to recompute are not carried over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
import dataclasses
import functools
import operator

from jaxlib.mlir import ir

from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.mlir import ARGUMENT
from lagom_xla.passes.program.mlir import Item
from lagom_xla.passes.program.strands import merge


class TripBody(mlir.Dataflow):
  """The body of a loop without its return; its arguments are the carries.

  `returned` are the next trip's carries, None for values from outside the loop.
  No trip changes the carries with numbers in `invariant`.
  """

  returned: Sequence[Item | None]
  invariant: frozenset[int]

  def __init__(self, loop: counted_loops.CountedLoop):
    super().__init__(loop.body)
    self.operations, self.uses = self.operations[:-1], self.uses[:-1]
    self.returned = [self.item(value) for value in mlir.returned(loop.body)]
    self.invariant = frozenset(
      i for i, item in enumerate(self.returned) if item == (ARGUMENT, i)
    )

  def with_all_needed(
    self, positions: Iterable[int]
  ) -> tuple[frozenset[int], frozenset[int]]:
    """Positions of operations and of everything they need, in any trip.

    Includes the unpacking of tuples that they return. Also returns the numbers
    of the carries that advance with them.
    """
    needed: set[int] = set()
    carries: set[int] = set()
    todo: list[Item] = [(position, 0) for position in positions]
    while todo:
      position, number = todo.pop()
      if position != ARGUMENT:
        if position not in needed:
          needed.add(position)
          todo.extend(self.uses[position])
      elif number not in self.invariant and number not in carries:
        carries.add(number)
        update = self.returned[number]
        if update is not None:
          todo.append(update)
    # A library call may return a tuple, which no loop can carry.
    for position, operation in enumerate(self.operations):
      if operation.name == "stablehlo.get_tuple_element":
        if any(source in needed for source, _ in self.uses[position]):
          needed.add(position)
    return frozenset(needed), frozenset(carries)


# Operations that only move data or are exact, so that recomputing them gives
# the same result in any fusion.
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
class Stages:
  """The two stages of a loop's body.

  Attributes:
    ahead: positions of the operations that run one trip ahead.
    ahead_carries: numbers of the carries that advance with them, without the
      counter, which both stages have.
    kept: values that the later stage takes from the earlier one.
    again: positions of the earlier stage's operations that the later stage
      repeats.
    num_bytes: size of the kept values.
  """

  ahead: Set[int]
  ahead_carries: Set[int]
  kept: tuple[Item, ...]
  again: Set[int]
  num_bytes: int

  @classmethod
  def of(
    cls, body: TripBody, ahead: Set[int], ahead_carries: Set[int]
  ) -> Stages:
    """The stages with these operations and carries ahead."""
    cheap: dict[int, bool] = {}

    def is_cheap(position: int) -> bool:
      if position not in cheap:
        cheap[position] = _is_cheap(body.operations[position]) and all(
          is_cheap(source)
          if source != ARGUMENT
          else number in body.invariant
          or mlir.shape_of(body.value((ARGUMENT, number))) == ()
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
      if position == ARGUMENT:
        if number in ahead_carries:
          kept.add(item)
      elif position in ahead and position not in again:
        if is_cheap(position):
          again.add(position)
          todo.extend(body.uses[position])
        else:
          kept.add(item)
    return cls(
      ahead=ahead,
      ahead_carries=ahead_carries,
      kept=tuple(sorted(kept)),
      again=again,
      num_bytes=sum(mlir.num_bytes(body.value(item)) for item in kept),
    )


def _is_cheap(operation: ir.Operation) -> bool:
  if operation.name in _CHEAP:
    return True
  if operation.name not in _CHEAP_ON_INTEGERS:
    return False
  element = ir.RankedTensorType(operation.results[0].type).element_type
  return isinstance(element, ir.IntegerType)


def cut(loop: counted_loops.CountedLoop) -> Stages | str:
  """The best stages of a loop's body, or why there are none."""
  body = TripBody(loop)
  products = _products(body)
  if len(products) < 2:
    return "a trip has fewer than two matmuls, so none can run beside another"
  ahead, _ = body.with_all_needed([products[0].position])
  if all(product.position in ahead for product in products):
    return (
      "a trip's first matmul needs results of the trip before, as when each"
      " micro-batch updates the parameters"
    )
  candidates = _candidates(body, products, loop.counter)
  if not candidates:
    return (
      "its trips are not micro-batches, whose gradients would all need one"
      " forward pass and nothing from the trip before"
    )
  best = max(worth for worth, _, _ in candidates)
  if not any(best):
    return "no loop of its forward pass makes as many trips as a later loop"
  stages = [
    Stages.of(body, ahead, carries)
    for worth, ahead, carries in candidates
    if worth == best
  ]
  return min(stages, key=lambda s: s.num_bytes)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Product:
  """An operation that runs products.

  `num_trips` is that of a counted loop, 0 for other operations. `flops` counts
  all trips. `needed` has bits of the trip's products that it needs, `carries`
  of the changing carries that it needs.
  """

  position: int
  num_trips: int
  flops: int
  needed: int
  carries: int


def _products(body: TripBody) -> list[_Product]:
  """The operations with products that differ from trip to trip."""
  changing = set(range(len(body.returned))) - body.invariant
  carries = mlir.depends(
    body.operations, {body.value((ARGUMENT, i)): 1 << i for i in changing}
  )
  found = [
    (position, flops)
    for position, operation in enumerate(body.operations)
    if len(operation.results) and operation.results[0] in carries
    if (flops := counted_loops.flops(operation))
  ]
  bits = {body.value((p, 0)): 1 << i for i, (p, _) in enumerate(found)}
  needed = mlir.depends(body.operations, bits)
  products: list[_Product] = []
  for position, flops in found:
    result = body.value((position, 0))
    loop = None
    if body.operations[position].name == mlir.LOOP:
      loop = counted_loops.read(body.operations[position])
    is_counted = isinstance(loop, counted_loops.CountedLoop)
    products.append(
      _Product(
        position=position,
        num_trips=loop.num_trips if is_counted else 0,
        flops=flops,
        needed=needed[result] & ~bits[result],
        carries=carries[result],
      )
    )
  return products


# FLOPs side by side in merged loops and outside of loops; operations that run
# ahead; and the carries that advance with them.
_Candidate = tuple[tuple[int, int], frozenset[int], frozenset[int]]


def _candidates(
  body: TripBody, products: Sequence[_Product], counter: int
) -> list[_Candidate]:
  """Cuts after a first part of the forward pass."""
  forward = _needed_by_all_last(products)
  found: dict[frozenset[int], _Candidate] = {}
  for end in range(1, len(forward) + 1):
    ahead, carries = body.with_all_needed(p.position for p in forward[:end])
    early = [product for product in products if product.position in ahead]
    late = [product for product in products if product.position not in ahead]
    # Nor may a backward pass need the one before, or trips would be layers.
    known = sum(1 << carry for carry in carries | {counter})
    if not late or any(product.carries & ~known for product in late):
      continue
    flops, _ = merge.align(_sizes(late), _sizes(early))
    outside = 0 if flops else min(_flops_outside(late), _flops_outside(early))
    found[ahead] = (flops, outside), ahead, carries - {counter}
  return list(found.values())


def _needed_by_all_last(products: Sequence[_Product]) -> Sequence[_Product]:
  """The products that every last product needs."""
  needed_by_any = functools.reduce(operator.or_, (p.needed for p in products))
  needed_by_all = functools.reduce(
    operator.and_,
    (p.needed for i, p in enumerate(products) if not needed_by_any >> i & 1),
  )
  return [p for i, p in enumerate(products) if needed_by_all >> i & 1]


def _sizes(products: Sequence[_Product]) -> merge.Sizes:
  return [(p.num_trips, p.flops) for p in products if p.num_trips]


def _flops_outside(products: Sequence[_Product]) -> int:
  """FLOPs of the products that are in no loop."""
  return sum(product.flops for product in products if not product.num_trips)
