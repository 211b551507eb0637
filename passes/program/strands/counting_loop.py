# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A new loop that counts in the carry in which another one counted.

XLA moves a slice by a memcpy, from JAX 0.11 on beside kernels, where the carry
that its loop's condition compares says which slice it is
(ResolveFunctionalDependencyOnInductionVariable, ir_emission_utils.cc). Told by
any other carry it takes a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from lagom_xla.passes.program import counted_loops


def create(
  like: counted_loops.CountedLoop,
  num_trips: int,
  operands: Sequence[ir.Value],
  *,
  every: int = 1,
) -> tuple[ir.Operation, ir.Block]:
  """A loop without its trips: the body is empty and has no end.

  Args:
    like: the loop whose counter it takes, at the same place.
    num_trips: how often its body runs.
    operands: what it carries: as many values as that loop, or more.
    every: trips of that loop that one of its own stands for.
  """
  types = [value.type for value in operands]
  loop = stablehlo.WhileOp(types, operands).operation
  locations = [loop.location] * len(types)
  condition, body = (
    region.blocks.append(*types, arg_locs=locations) for region in loop.regions
  )
  with ir.InsertionPoint(condition):
    counter = condition.arguments[like.counter]
    end = _constant(like.start + num_trips * every * like.step, counter.type)
    direction = stablehlo.ComparisonDirectionAttr.get(
      "LT" if like.step > 0 else "GT"
    )
    stablehlo.return_([stablehlo.compare(counter, end, direction)])
  return loop, body


def end(
  body: ir.Block,
  like: counted_loops.CountedLoop,
  values: Sequence[ir.Value],
  *,
  every: int = 1,
) -> None:
  """Ends the body of such a loop, at the insertion point.

  Args:
    body: the loop's.
    like: as for `create`.
    values: what the next trip takes; for the counter any, which is replaced.
    every: as for `create`.
  """
  counter = body.arguments[like.counter]
  step = _constant(every * like.step, counter.type)
  returned = list(values)
  returned[like.counter] = stablehlo.add(counter, step)
  stablehlo.return_(returned)


def _constant(number: int, type_: ir.Type) -> ir.Value:
  value = ir.Attribute.parse(f"dense<{number}> : {type_}")
  return stablehlo.constant(value)
