# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Matrix products that an operation runs, over all trips and calls."""

from __future__ import annotations

from jaxlib.mlir import ir

from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program import functions

_PRODUCTS = frozenset(
  ["stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution"]
)


class Counter:
  """Counts products in a module whose functions stay as they are."""

  def __init__(self, module: ir.Module):
    self._functions = functions.by_name(module.operation)
    self._known: dict[str, int] = {}

  def of(self, operation: ir.Operation) -> int:
    """Products that an operation runs; a loop that does not count runs once."""
    if operation.name in _PRODUCTS:
      return 1
    if functions.is_call(operation):
      return self._of_function(functions.callee(operation))
    inside = sum(
      self.of(inner.operation)
      for region in operation.regions
      for block in region.blocks
      for inner in block.operations
    )
    if operation.name == "stablehlo.while" and inside:
      read = counted_loops.read(operation)
      if isinstance(read, counted_loops.CountedLoop):
        return inside * read.num_trips
    return inside

  def _of_function(self, name: str) -> int:
    if name not in self._known:
      self._known[name] = self.of(self._functions[name])
    return self._known[name]
