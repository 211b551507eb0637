# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Strands: the choice of loops to merge, one of each micro-batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import dataclasses
import itertools

from jaxlib.mlir import ir

from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.form import Outcome
from lagom_xla.passes.program.form import Refusal
from lagom_xla.passes.program.strands import merge
from lagom_xla.passes.program.strands import rotate


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Loop:
  """A loop that may share its trips with another.

  Attributes:
    number: tells it from the block's others.
    loop: the loop.
    flops: what its products work, over all trips.
    kind: what its body does; the loops of two micro-batches that run the same
      pass are of one kind.
    where: its place in the program.
  """

  number: int
  loop: counted_loops.CountedLoop
  flops: int
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
  mlir.inline_all(module)
  outcome = Outcome()
  for function in list(module.body.operations):
    for block in _blocks(function.operation):
      outcome += _merge_in_block(block, staggered=staggered)
  if outcome == Outcome():
    # Of unrolled layers XLA's scheduler interleaves two strands by itself.
    reason = "it has no loop with products that could share its trips"
    outcome = Outcome(refusals=(Refusal(where="the program", reason=reason),))
  return outcome


def _merge_in_block(block: ir.Block, *, staggered: bool) -> Outcome:
  """The same for one block, and for what is nested in it."""
  outcome, merged = _pair_up(block, staggered=staggered)
  # A list: an operation's hash changes with its operands.
  new = [loop.operation for loop in merged]
  for operation in list(block.operations):
    if operation.operation not in new:
      for inner in _blocks(operation.operation):
        outcome += _merge_in_block(inner, staggered=staggered)
  rotate.gather_ahead(merged)
  return outcome


def _blocks(operation: ir.Operation) -> Iterable[ir.Block]:
  """The blocks right under an operation in which there may be loops."""
  if operation.name == "stablehlo.while":
    return operation.regions[1].blocks
  return itertools.chain.from_iterable(r.blocks for r in operation.regions)


def _pair_up(
  block: ir.Block, *, staggered: bool
) -> tuple[Outcome, list[counted_loops.CountedLoop]]:
  """Merges pairs of a block's loops until none is left that could be."""
  loops, refusals = _loops(block)
  actions: list[str] = []
  merged: list[counted_loops.CountedLoop] = []
  reasons: dict[int, str] = {}
  while len(loops) > 1:
    within = mlir.BlockDependence(block)
    # A merge moves what its second loop needs, loops too, before the first.
    loops.sort(key=lambda loop: within.position(loop.loop.operation))
    pair = _best_pair(loops, within, reasons, staggered=staggered)
    if pair is None:
      break
    first, second = pair
    loops = [loop for loop in loops if loop not in pair]
    merged += merge.merge_deeply(first.loop, second.loop, within)
    actions.append(
      f"{first.where[0].upper()}{first.where[1:]} and {second.where} became"
      " one."
    )
  for loop in loops:
    reason = reasons.get(
      loop.number, "no other loop with products is beside it"
    )
    refusals.append(Refusal(where=loop.where, reason=reason))
  return Outcome(actions=tuple(actions), refusals=tuple(refusals)), merged


def _loops(block: ir.Block) -> tuple[list[_Loop], list[Refusal]]:
  """The loops of a block that run products; and those that do not count."""
  loops, refusals = [], []
  for operation in block.operations:
    operation = operation.operation
    if operation.name != "stablehlo.while":
      continue
    flops = counted_loops.flops(operation)
    if not flops:
      continue
    where = f"the loop at {mlir.place_of(operation)}"
    read = counted_loops.read(operation)
    if isinstance(read, str):
      refusals.append(Refusal(where=where, reason=read))
      continue
    where += f" ({read.num_trips} trips of {flops // read.num_trips:.2e} FLOPs)"
    kind = tuple(op.operation.name for op in read.body.operations)
    loops.append(
      _Loop(number=len(loops), loop=read, flops=flops, kind=kind, where=where)
    )
  return loops, refusals


def _best_pair(
  loops: Sequence[_Loop],
  within: mlir.BlockDependence,
  reasons: dict[int, str],
  *,
  staggered: bool,
) -> tuple[_Loop, _Loop] | None:
  """The pair that hides most: of the wanted kinds, large, and close."""

  def worth(pair: tuple[_Loop, _Loop]) -> tuple[bool, int, int]:
    first, second = pair
    distance = loops.index(second) - loops.index(first)
    return (
      (first.kind != second.kind) == staggered,
      min(first.flops, second.flops),
      -distance,
    )

  pairs = itertools.combinations(loops, 2)
  for first, second in sorted(pairs, key=worth, reverse=True):
    reason = merge.obstacle(first.loop, second.loop, within)
    if reason is None:
      return first, second
    for loop, other in ((first, second), (second, first)):
      reasons.setdefault(loop.number, f"beside {other.where}: {reason}")
  return None
