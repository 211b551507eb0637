# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Strands: the choice of loops to merge, one of each micro-batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import dataclasses
import itertools

from jaxlib.mlir import ir

from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program import dependence
from lagom_xla.passes.program import inline
from lagom_xla.passes.program import merge
from lagom_xla.passes.program import place
from lagom_xla.passes.program import products
from lagom_xla.passes.program.outcome import Outcome
from lagom_xla.passes.program.outcome import Refusal


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Loop:
  """A loop that may share its trips with another.

  Attributes:
    loop: the loop.
    num_products: matrix products that it runs, over all trips.
    kind: what its body does; the loops of two micro-batches that run the same
      pass are of one kind.
    where: its place in the program.
  """

  loop: counted_loops.CountedLoop
  num_products: int
  kind: tuple[str, ...]
  where: str


def merge_loops(module: ir.Module, *, staggered: bool = False) -> Outcome:
  """Merges, in every block, loops that do not depend on each other.

  Loops without a matrix product stay alone: they compute too little to hide
  what the other communicates.

  Args:
    module: the program; it is changed.
    staggered: whether a backward pass should share its loop with the next
      micro-batch's forward pass; else passes of the same kind come together.
  """
  inline.inline_loops(module)
  counter = products.Counter(module)
  outcome = Outcome()
  for function in module.body.operations:
    for block in _blocks(function.operation):
      outcome += merge_in_block(block, counter, staggered=staggered)
  if outcome == Outcome():
    # Of unrolled layers XLA's scheduler interleaves two strands by itself.
    reason = "it has no loop with products that could share its trips"
    outcome = Outcome(refusals=(Refusal(where="the program", reason=reason),))
  return outcome


def merge_in_block(
  block: ir.Block, counter: products.Counter, *, staggered: bool = False
) -> Outcome:
  """The same for one block, and for what is nested in it.

  Args:
    block: calls in it that hold loops are inlined already (`inline.py`).
    counter: of the module's products.
    staggered: see `merge_loops`.
  """
  outcome, merged = _pair_up(block, counter, staggered=staggered)
  for operation in list(block.operations):
    if operation.operation not in merged:
      for inner in _blocks(operation.operation):
        outcome += merge_in_block(inner, counter, staggered=staggered)
  return outcome


def _blocks(operation: ir.Operation) -> Iterable[ir.Block]:
  """The blocks right under an operation in which there may be loops."""
  if operation.name == "stablehlo.while":
    return operation.regions[1].blocks
  return itertools.chain.from_iterable(r.blocks for r in operation.regions)


def _pair_up(
  block: ir.Block, counter: products.Counter, *, staggered: bool
) -> tuple[Outcome, set[ir.Operation]]:
  """Merges pairs of a block's loops until none is left that could be."""
  loops, refusals = _loops(block, counter)
  actions: list[str] = []
  merged: set[ir.Operation] = set()
  reasons: dict[ir.Operation, str] = {}
  while len(loops) > 1:
    within = dependence.BlockDependence(block)
    pair = _best_pair(loops, within, reasons, staggered=staggered)
    if pair is None:
      break
    first, second = pair
    loops = [loop for loop in loops if loop not in pair]
    merged.add(merge.merge(first.loop, second.loop, within).operation)
    actions.append(
      f"{first.where[0].upper()}{first.where[1:]} and {second.where} became"
      " one."
    )
  for loop in loops:
    reason = reasons.get(
      loop.loop.operation, "no other loop with products is beside it"
    )
    refusals.append(Refusal(where=loop.where, reason=reason))
  return Outcome(actions=tuple(actions), refusals=tuple(refusals)), merged


def _loops(
  block: ir.Block, counter: products.Counter
) -> tuple[list[_Loop], list[Refusal]]:
  """The loops of a block that run products; and those that do not count."""
  loops, refusals = [], []
  for operation in block.operations:
    operation = operation.operation
    if operation.name != "stablehlo.while":
      continue
    num_products = counter.of(operation)
    if not num_products:
      continue
    where = f"the loop at {place.of_operation(operation)}"
    read = counted_loops.read(operation)
    if isinstance(read, str):
      refusals.append(Refusal(where=where, reason=read))
      continue
    where += f" ({read.num_trips} trips, {num_products} products)"
    kind = tuple(op.operation.name for op in read.body.operations)
    loops.append(
      _Loop(loop=read, num_products=num_products, kind=kind, where=where)
    )
  return loops, refusals


def _best_pair(
  loops: Sequence[_Loop],
  within: dependence.BlockDependence,
  reasons: dict[ir.Operation, str],
  *,
  staggered: bool,
) -> tuple[_Loop, _Loop] | None:
  """The pair that hides most: of the wanted kinds, large, and close."""

  def worth(pair: tuple[_Loop, _Loop]) -> tuple[bool, int, int]:
    first, second = pair
    distance = loops.index(second) - loops.index(first)
    return (
      (first.kind != second.kind) == staggered,
      min(first.num_products, second.num_products),
      -distance,
    )

  pairs = itertools.combinations(loops, 2)
  for first, second in sorted(pairs, key=worth, reverse=True):
    reason = merge.obstacle(first.loop, second.loop, within)
    if reason is None:
      return first, second
    for loop, other in ((first, second), (second, first)):
      reasons.setdefault(loop.loop.operation, f"beside {other.where}: {reason}")
  return None
