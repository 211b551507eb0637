# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Chooses the loops to merge into strands, one of each micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import itertools

from jaxlib.mlir import ir

from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.form import Outcome
from lagom_xla.passes.program.form import Refusal
from lagom_xla.passes.program.strands import merge
from lagom_xla.passes.program.strands import rotate


@dataclasses.dataclass(kw_only=True, slots=True, eq=False)
class _Loop:
  """A loop that may share its trips with another, or the reason why not.

  `flops` counts all trips. Loops for the same pass of two micro-batches have
  the same `kind`.
  """

  loop: counted_loops.CountedLoop
  flops: int
  kind: tuple[str, ...]
  where: str
  reason: str = ""


def merge_loops(module: ir.Module, *, staggered: bool) -> Outcome:
  """Merges, in every block, loops that do not depend on each other.

  Loops without a matrix product are not merged: they compute too little to hide
  the other loop's communication. If `staggered`, a backward pass preferably
  shares its loop with the next micro-batch's forward pass; otherwise, passes of
  the same kind share one.
  """
  mlir.inline_all(module)
  outcome = Outcome()
  for function in module.body.operations:
    outcome += _merge_in(function.operation, staggered=staggered)
  if outcome != Outcome():
    return outcome
  # XLA's scheduler interleaves two strands of unrolled layers by itself.
  reason = "it has no loop with matmuls that could share its trips"
  return Outcome.refused("the program", reason)


def _merge_in(operation: ir.Operation, *, staggered: bool) -> Outcome:
  """Merges loops in the blocks of an operation, and in nested operations."""
  outcome = Outcome()
  is_loop = operation.name == mlir.LOOP
  for region in list(operation.regions)[int(is_loop) :]:
    for block in region.blocks:
      of_block, merged = _pair_up(block, staggered=staggered)
      outcome += of_block
      # A list, because an operation's hash changes with its operands.
      new = [loop.operation for loop in merged]
      for inner in [op.operation for op in block.operations]:
        if inner not in new:
          outcome += _merge_in(inner, staggered=staggered)
      rotate.gather_ahead(merged)
  return outcome


def _pair_up(
  block: ir.Block, *, staggered: bool
) -> tuple[Outcome, list[counted_loops.CountedLoop]]:
  """Merges pairs of a block's loops until no pair can be merged."""
  loops, refusals = _loops(block)
  actions: list[str] = []
  merged: list[counted_loops.CountedLoop] = []
  while len(loops) > 1:
    within = mlir.Dataflow(block)
    # A merge moves operations that its second loop needs, even loops, ahead of
    # the first.
    loops.sort(key=lambda loop: within.position(loop.loop.operation))
    pair = _best_pair(loops, within, staggered=staggered)
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
    reason = loop.reason or "no other loop with matmuls is beside it"
    refusals.append(Refusal(where=loop.where, reason=reason))
  return Outcome(actions=tuple(actions), refusals=tuple(refusals)), merged


def _loops(block: ir.Block) -> tuple[list[_Loop], list[Refusal]]:
  """The loops of a block that run products, and refusals of uncounted ones."""
  loops, refusals = [], []
  for operation in [op.operation for op in block.operations]:
    flops = 0
    if operation.name == mlir.LOOP:
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
    loops.append(_Loop(loop=read, flops=flops, kind=kind, where=where))
  return loops, refusals


def _best_pair(
  loops: Sequence[_Loop], within: mlir.Dataflow, *, staggered: bool
) -> tuple[_Loop, _Loop] | None:
  """The pair that hides most: of the wanted kinds, large, and close by."""

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
      loop.reason = loop.reason or f"beside {other.where}: {reason}"
  return None
