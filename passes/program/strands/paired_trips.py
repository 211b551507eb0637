# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Pairs of trips of the loop over micro-batches, side by side.

A loop over micro-batches runs one of them in each trip. Two that stand in one
trip need nothing of each other but the sum that both add to:

    for m in 0, 2, 4 ..:  F(m) and F(m + 1);  B(m) and B(m + 1)

so their loops over layers become one, and each hides what the other
communicates (Domino, arXiv 2409.15241, with micro-batches in place of halves).
Nothing stays alone but the last of an odd number. Residuals of two micro-
batches are alive, and gradients are added up in the order in which they were.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program.form import Outcome
from lagom_xla.passes.program.strands import counting_loop
from lagom_xla.passes.program.strands import merge
from lagom_xla.passes.program.strands import micro_batch_loop
from lagom_xla.passes.program.strands import rotated_loop
from lagom_xla.passes.program.strands import stages
from lagom_xla.passes.program.strands import trip_copy


def pair_trips(module: ir.Module) -> Outcome:
  """Pairs the trips of the loop over micro-batches of a program.

  Args:
    module: the program; it is changed.
  """
  return micro_batch_loop.change(module, _pair)


def _pair(loop: counted_loops.CountedLoop) -> micro_batch_loop.Done | str:
  reason = _dependence(stages.TripBody(loop))
  if reason is not None:
    return reason
  num_pairs, num_alone = divmod(loop.num_trips, 2)
  old = loop.operation
  with old.location, ir.InsertionPoint(old):
    new, body = counting_loop.create(
      loop, num_pairs, list(old.operands), every=2
    )
    with ir.InsertionPoint(body):
      first = trip_copy.write_whole(loop, list(body.arguments))
      second = trip_copy.write_whole(loop, list(first.returned.values()))
      counting_loop.end(body, loop, list(second.returned.values()), every=2)
    results = list(new.results)
    if num_alone:
      last = trip_copy.write_whole(loop, results)
      results = list(last.returned.values())
    for result, value in zip(old.results, results, strict=True):
      result.replace_all_uses_with(value)
  old.erase()
  shared = merge.share(
    body, list(first.operations.values()), list(second.operations.values())
  )
  rotated_loop.gather_ahead(shared)
  return micro_batch_loop.Done(
    f"runs two trips at a time; {len(shared)} pairs of inner loops became one."
  )


def _dependence(body: stages.TripBody) -> str | None:
  """Why a trip's products cannot run beside those of the trip before."""
  products = [
    position
    for position, operation in enumerate(body.operations)
    if counted_loops.flops(operation)
  ]
  _, carries = body.with_all_needed(products)
  updates = [body.returned[number] for number in carries]
  advancing = body.needed_in_trip(item[0] for item in updates if item)
  if advancing.intersection(products):
    return (
      "a trip's products need what those of the trip before computed, as where"
      " each micro-batch updates the parameters"
    )
  return None
