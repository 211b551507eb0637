# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stages of a loop over micro-batches: what can run one trip ahead of the rest.

The forward pass of micro-batch m + 1 may run beside the backward pass of m if
it needs nothing that the backward pass of m computes. Which operations are the
forward pass is read off the dependence among products (dots and loops with
dots), not off names:

- The stage that runs ahead begins with the first products of the body, and
  takes whatever they need: within a trip, and from the trip before through the
  loop's carries (a counter, a random key).
- It may end wherever every later product needs every earlier one. Borders of
  layers are such places up to the turning point from forward to backward;
  behind that, a layer's weight gradient is needed by no product any more.
- Of these places the best has most work side by side: inner loops of both
  stages that can become one, or if there are none, products of both; and then
  the fewest bytes to carry across. For unrolled layers that is the turning
  point itself, as the backward pass works more than the forward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import dataclasses
import itertools

from jaxlib.mlir import ir

from lagom_xla.passes.program import alignment
from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program import crossing
from lagom_xla.passes.program import product_flops
from lagom_xla.passes.program import trip_body


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Stages:
  """How the body of a loop is cut in two.

  Attributes:
    ahead: positions of the operations that run one trip ahead.
    ahead_carries: numbers of the carries that advance with them.
    crossing: what the later stage takes from the earlier one.
  """

  ahead: frozenset[int]
  ahead_carries: frozenset[int]
  crossing: crossing.Crossing


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Product:
  """An operation that runs products.

  Attributes:
    position: where it stands.
    flops: what it works, over all its trips.
    num_trips: 0 where it is no counted loop.
    needed: bit mask of the products of its trip that it needs.
  """

  position: int
  flops: int
  num_trips: int
  needed: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Candidate:
  """A cut behind the first products.

  Attributes:
    ahead: positions of what runs ahead.
    ahead_carries: numbers of the carries that advance with it.
    worth: FLOPs side by side in merged loops; if there are none, outside.
  """

  ahead: frozenset[int]
  ahead_carries: frozenset[int]
  worth: tuple[int, int]


def cut(loop: counted_loops.CountedLoop) -> Stages | str:
  """The best cut of a loop's body in two stages, or why there is none."""
  body = trip_body.TripBody(loop)
  products = _products(body)
  if len(products) < 2:
    return "a trip has fewer than two products, so none can run beside another"
  ahead, _ = body.with_all_needed([products[0].position])
  if all(product.position in ahead for product in products):
    return (
      "a trip's first product needs what the last one of the trip before"
      " computed, as where each micro-batch updates the parameters"
    )
  candidates = list(_candidates(body, products))
  if not candidates:
    return (
      "no part of its products could run a trip ahead: nowhere does every later"
      " product of a trip need every earlier one"
    )
  best = max(candidate.worth for candidate in candidates)
  if not any(best):
    return (
      "no part of it that could run a trip ahead has a loop like the rest's"
    )
  stages = [
    Stages(
      ahead=candidate.ahead,
      ahead_carries=candidate.ahead_carries,
      crossing=crossing.between(body, candidate.ahead, candidate.ahead_carries),
    )
    for candidate in candidates
    if candidate.worth == best
  ]
  return min(stages, key=lambda s: s.crossing.num_bytes)


def _products(body: trip_body.TripBody) -> list[_Product]:
  """The operations with products that differ from trip to trip."""
  products: list[_Product] = []
  needed: list[int] = []
  varies: list[bool] = []
  for position, operation in enumerate(body.operations):
    mask, does_vary = 0, False
    for source, number in body.uses[position]:
      if source == trip_body.CARRY:
        does_vary |= number not in body.invariant
      else:
        mask |= needed[source]
        does_vary |= varies[source]
    flops = product_flops.flops(operation) if does_vary else 0
    if flops:
      products.append(
        _Product(
          position=position,
          flops=flops,
          num_trips=_num_trips(operation),
          needed=mask,
        )
      )
      mask |= 1 << (len(products) - 1)
    needed.append(mask)
    varies.append(does_vary)
  return products


def _num_trips(operation: ir.Operation) -> int:
  if operation.name != "stablehlo.while":
    return 0
  loop = counted_loops.read(operation)
  return 0 if isinstance(loop, str) else loop.num_trips


def _candidates(
  body: trip_body.TripBody, products: Sequence[_Product]
) -> Iterator[_Candidate]:
  """Cuts such that every product behind them needs every one before them."""
  ones = (1 << len(products)) - 1
  # For each product, what it and all later ones need.
  by_all_later = list(
    itertools.accumulate(
      (product.needed for product in reversed(products)),
      lambda a, b: a & b,
      initial=ones,
    )
  )[::-1]
  for num_first in range(1, len(products)):
    first = (1 << num_first) - 1
    if by_all_later[num_first] & first != first:
      continue
    early, late = products[:num_first], products[num_first:]
    ahead, carries = body.with_all_needed(p.position for p in early)
    if any(product.position in ahead for product in late):
      continue
    flops, _ = alignment.align(_loops(late), _loops(early))
    outside = 0 if flops else min(_flops_outside(late), _flops_outside(early))
    yield _Candidate(ahead=ahead, ahead_carries=carries, worth=(flops, outside))


def _loops(products: Sequence[_Product]) -> list[alignment.Loop]:
  return [
    alignment.Loop(
      position=product.position,
      num_trips=product.num_trips,
      flops=product.flops,
    )
    for product in products
    if product.num_trips
  ]


def _flops_outside(products: Sequence[_Product]) -> int:
  """What products work that are in no loop."""
  return sum(product.flops for product in products if not product.num_trips)
