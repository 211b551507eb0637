# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The loop over micro-batches: where a program accumulates gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
import functools

from jaxlib.mlir import ir

from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.form import Outcome
from lagom_xla.passes.program.form import Refusal

# Writes a loop anew; returns what it did, as the end of a sentence that begins
# with the loop, or why it did nothing.
Change = Callable[[counted_loops.CountedLoop], "Done | str"]


class Done(str):
  """What was done to a loop."""


def change(module: ir.Module, change_loop: Change) -> Outcome:
  """Changes the loop over micro-batches, wherever in a program it is.

  It is the outermost loop that runs more than half of the program's products,
  makes two trips or more, and that can be changed.

  Args:
    module: the program; it is changed. Its calls are inlined even if nothing
      else is done.
    change_loop: changes a loop.
  """
  mlir.inline_all(module)
  functions = [op.operation for op in module.body.operations]
  half_flops = sum(map(counted_loops.flops, functions)) / 2
  change_if_possible = functools.partial(
    _change_if_possible,
    is_partitioned=mlir.is_partitioned(module),
    change_loop=change_loop,
  )
  outcome = Outcome()
  for function in functions:
    outcome += _change_in(function, half_flops, change_if_possible)
  if outcome == Outcome():
    where, reason = "the program", "no loop of it runs most of its products"
    outcome += Outcome(refusals=(Refusal(where=where, reason=reason),))
  return outcome


def _change_in(
  operation: ir.Operation,
  half_flops: float,
  change_if_possible: Callable[[ir.Operation], Outcome],
) -> Outcome:
  """Changes the outermost loop under an operation that can be."""
  outcome = Outcome()
  for inner in _with_regions(operation):
    if inner.name == "stablehlo.while":
      if counted_loops.flops(inner) <= half_flops:
        continue
      outcome += change_if_possible(inner)
    if outcome.actions:
      return outcome
    per_trip = half_flops / max(counted_loops.num_trips(inner), 1)
    outcome += _change_in(inner, per_trip, change_if_possible)
  return outcome


def _with_regions(operation: ir.Operation) -> Iterator[ir.Operation]:
  """The operations right inside of one that have others inside themselves."""
  for region in operation.regions:
    for block in region.blocks:
      for inner in [op.operation for op in block.operations]:
        if inner.regions:
          yield inner


def _change_if_possible(
  operation: ir.Operation, *, is_partitioned: bool, change_loop: Change
) -> Outcome:
  where = f"the loop at {mlir.place_of(operation)}"
  loop = _loop_to_change(operation, is_partitioned)
  done = loop if isinstance(loop, str) else change_loop(loop)
  if not isinstance(done, Done):
    return Outcome(refusals=(Refusal(where=where, reason=done),))
  assert not isinstance(loop, str)
  return Outcome(
    actions=(f"{where[0].upper()}{where[1:]} ({loop.num_trips} trips) {done}",)
  )


def _loop_to_change(
  operation: ir.Operation, is_partitioned: bool
) -> counted_loops.CountedLoop | str:
  """A loop whose trips may overlap, or why not."""
  loop = counted_loops.read(operation)
  if isinstance(loop, str):
    return loop
  if loop.num_trips < 2:
    return "it makes no more than 1 trip, and only two can overlap"
  effect = mlir.first_effect(operation)
  if effect is not None:
    return f"in it is {effect}"
  if not is_partitioned and not mlir.has_collective(operation):
    return "nothing in it communicates"
  return loop
