# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stages of a loop over micro-batches: what can run one trip ahead of the rest.

The forward pass of micro-batch m + 1 may run beside the backward pass of m if
it needs nothing that the backward pass of m computes. Which operations are the
forward pass is read off the dependence among products (dots and loops with
dots), not off names:

- The forward pass is what every last product of a trip needs. Last products,
  which no other product needs, are gradients of weights, and through the loss
  each of them needs the whole forward pass, but not what is recomputed. No
  product of the backward pass needs anything of the trip before, as those of a
  loop over layers do: recomputing a layer beside the gradients of the one above
  was tried, and gains nothing.
- The stage that runs ahead is the forward pass or a first part of it, with all
  that it needs: within a trip, and from the trip before through the loop's
  carries (a counter, a random key).
- The best part has most work side by side: inner loops of both stages that can
  become one, or if there are none, products of both; and then the fewest bytes
  to carry across. For unrolled layers that is the whole forward pass, as the
  backward pass works more.

What crosses from the earlier stage to the later is kept from one trip to the
next, as residuals of a forward pass are. What costs next to nothing to compute
again, such as a slice of the batch or a constant, does not cross.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
import dataclasses
import functools
import operator

from jaxlib.mlir import ir

from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.strands import merge

# A value of a body: the position of the operation that defines it and the
# number of the result; or this and the number of the carry.
CARRY = -1
Item = tuple[int, int]


class TripBody:
  """The body of a loop, as positions and numbers.

  It describes the body as it was when this was made.

  Attributes:
    operations: those of the body in order, without the return.
    uses: for each, the values of the body that it and its regions use.
    returned: for each carry, the value that the next trip takes; None where it
      is from outside the loop.
    invariant: numbers of the carries that no trip changes.
  """

  operations: Sequence[ir.Operation]
  uses: Sequence[frozenset[Item]]
  returned: Sequence[Item | None]
  invariant: frozenset[int]

  def __init__(self, loop: counted_loops.CountedLoop):
    *operations, last = [op.operation for op in loop.body.operations]
    self.operations = operations
    self._block = loop.body
    self._position = {op: i for i, op in enumerate(operations)}
    self.uses = [self._items(mlir.used_values(op)) for op in self.operations]
    self.returned = [self._item(value) for value in last.operands]
    self.invariant = frozenset(
      i for i, item in enumerate(self.returned) if item == (CARRY, i)
    )

  def value(self, item: Item) -> ir.Value:
    """The value itself."""
    position, number = item
    if position == CARRY:
      return self._block.arguments[number]
    return self.operations[position].results[number]

  def with_all_needed(
    self, positions: Iterable[int]
  ) -> tuple[frozenset[int], frozenset[int]]:
    """Operations and all that they need, from the trip before as well.

    Tuples that they return are unpacked with them.

    Returns:
      The positions of those operations, and the numbers of the carries that
      advance with them.
    """
    found: set[int] = set()
    carries: set[int] = set()
    todo: list[Item] = [(position, 0) for position in positions]
    while todo:
      position, number = todo.pop()
      if position != CARRY:
        if position not in found:
          found.add(position)
          todo.extend(self.uses[position])
      elif number not in self.invariant and number not in carries:
        carries.add(number)
        update = self.returned[number]
        if update is not None:
          todo.append(update)
    # A tuple, which a library call may return, is carried by no loop.
    for position, operation in enumerate(self.operations):
      if operation.name == "stablehlo.get_tuple_element":
        if any(source in found for source, _ in self.uses[position]):
          found.add(position)
    return frozenset(found), frozenset(carries)

  def _items(self, values: Iterable[ir.Value]) -> frozenset[Item]:
    items = map(self._item, values)
    return frozenset(item for item in items if item is not None)

  def _item(self, value: ir.Value) -> Item | None:
    owner = value.owner
    if isinstance(owner, ir.Block):
      if owner != self._block:
        return None
      return CARRY, ir.BlockArgument(value).arg_number
    position = self._position.get(owner.operation)
    if position is None:
      return None
    return position, ir.OpResult(value).result_number


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


def crossing_between(
  body: TripBody, ahead: Set[int], ahead_carries: Set[int]
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


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Stages:
  """How the body of a loop is cut in two.

  Attributes:
    ahead: positions of the operations that run one trip ahead.
    ahead_carries: numbers of the carries that advance with them; not that of
      the counter, which both stages know.
    crossing: what the later stage takes from the earlier one.
  """

  ahead: frozenset[int]
  ahead_carries: frozenset[int]
  crossing: Crossing


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Product(merge.Loop):
  """An operation that runs products; one that is no counted loop has no trips.

  Attributes:
    needed: bit mask of the products of its trip that it needs.
    carries: bit mask of the carries that it needs, unchanging ones left out.
  """

  needed: int
  carries: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Candidate:
  """A cut behind a first part of the forward pass.

  Attributes:
    ahead: positions of what runs ahead.
    ahead_carries: as of `Stages`.
    worth: FLOPs side by side in merged loops; if there are none, outside.
  """

  ahead: frozenset[int]
  ahead_carries: frozenset[int]
  worth: tuple[int, int]


def cut(loop: counted_loops.CountedLoop) -> Stages | str:
  """The best cut of a loop's body in two stages, or why there is none."""
  body = TripBody(loop)
  products = _products(body)
  if len(products) < 2:
    return "a trip has fewer than two products, so none can run beside another"
  ahead, _ = body.with_all_needed([products[0].position])
  if all(product.position in ahead for product in products):
    return (
      "a trip's first product needs what the last one of the trip before"
      " computed, as where each micro-batch updates the parameters"
    )
  candidates = list(_candidates(body, products, loop.counter))
  if not candidates:
    return (
      "its trips are not those of micro-batches, whose gradients all need one"
      " forward pass and nothing of the trip before"
    )
  best = max(candidate.worth for candidate in candidates)
  if not any(best):
    return "no loop of its forward pass makes as many trips as one of the rest"
  stages = [
    Stages(
      ahead=candidate.ahead,
      ahead_carries=candidate.ahead_carries,
      crossing=crossing_between(body, candidate.ahead, candidate.ahead_carries),
    )
    for candidate in candidates
    if candidate.worth == best
  ]
  return min(stages, key=lambda s: s.crossing.num_bytes)


def _products(body: TripBody) -> list[_Product]:
  """The operations with products that differ from trip to trip."""
  products: list[_Product] = []
  needed: list[int] = []
  carries: list[int] = []
  for position, operation in enumerate(body.operations):
    mask = carried = 0
    for source, number in body.uses[position]:
      if source != CARRY:
        mask |= needed[source]
        carried |= carries[source]
      elif number not in body.invariant:
        carried |= 1 << number
    flops = counted_loops.flops(operation) if carried else 0
    if flops:
      products.append(
        _Product(
          position=position,
          flops=flops,
          num_trips=_num_trips(operation),
          needed=mask,
          carries=carried,
        )
      )
      mask |= 1 << (len(products) - 1)
    needed.append(mask)
    carries.append(carried)
  return products


def _num_trips(operation: ir.Operation) -> int:
  if operation.name != "stablehlo.while":
    return 0
  loop = counted_loops.read(operation)
  return 0 if isinstance(loop, str) else loop.num_trips


def _candidates(
  body: TripBody, products: Sequence[_Product], counter: int
) -> Iterator[_Candidate]:
  """Cuts behind a first part of the forward pass."""
  forward = _needed_by_all_last(products)
  seen: set[frozenset[int]] = set()
  for end in range(1, len(forward) + 1):
    ahead, carries = body.with_all_needed(p.position for p in forward[:end])
    early = [product for product in products if product.position in ahead]
    late = [product for product in products if product.position not in ahead]
    if not late or ahead in seen:
      continue
    seen.add(ahead)
    # Nor may a backward pass need the one before: it would be a layer's.
    known = sum(1 << carry for carry in carries | {counter})
    if any(product.carries & ~known for product in late):
      continue
    flops, _ = merge.align(_loops(late), _loops(early))
    outside = 0 if flops else min(_flops_outside(late), _flops_outside(early))
    yield _Candidate(
      ahead=ahead, ahead_carries=carries - {counter}, worth=(flops, outside)
    )


def _needed_by_all_last(products: Sequence[_Product]) -> Sequence[_Product]:
  """The products that every product that no other one needs does need."""
  needed_by_any = functools.reduce(operator.or_, (p.needed for p in products))
  needed_by_all = functools.reduce(
    operator.and_,
    (p.needed for i, p in enumerate(products) if not needed_by_any >> i & 1),
  )
  return [p for i, p in enumerate(products) if needed_by_all >> i & 1]


def _loops(products: Sequence[_Product]) -> list[_Product]:
  return [product for product in products if product.num_trips]


def _flops_outside(products: Sequence[_Product]) -> int:
  """What products work that are in no loop."""
  return sum(product.flops for product in products if not product.num_trips)
