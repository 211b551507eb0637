# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Strand keys: what keeps XLA from combining collectives of two strands.

Two strands, say two micro-batches, do not depend on each other, so that the one
computes while the other communicates. XLA's combiners undo that: below their
thresholds (30 MiB) they make one collective of both strands', which waits for
both, and for which both wait. XLA joins only collectives whose frontend
attributes `combiner_key` are equal. So each strand gets a key of its own here,
and what XLA combines within a strand stays as it was.

Collectives that are written out, as under `jax.shard_map`, bear the key
themselves. Those that XLA's partitioner has yet to place get the attributes of
the operation that needs them, so there every operation of a strand bears it.
Two kinds of those are missed: a reduce-scatter that XLA makes of an all-reduce
(jaxlib 0.10.2 drops the key; 0.12 keeps it), and what a sharding constraint
alone asks for. Combine thresholds of 0 keep these apart.

Whether it gains depends on sizes, so it is a choice. Predicted for TP 8 with
sequence parallelism on eight H100s, 8 layers 4096 wide: unrolled micro-batches
gain 4 to 14 %, from 1024 to 8192 tokens; merged loops gain 2 to 8 % at 8192
tokens, and lose 0 to 7 % below, where one collective of both strands takes much
less than two.
"""

from __future__ import annotations

from collections.abc import Iterator

from jaxlib.mlir import ir

from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.form import Outcome
from lagom_xla.passes.program.strands import membership

_PRODUCTS = frozenset(["stablehlo.convolution", "stablehlo.dot_general"])


def key_strands(module: ir.Module) -> Outcome:
  """Gives the collectives of different strands different combiner keys.

  Keys that are there already are kept.

  Args:
    module: the program; it is changed. Its calls are inlined even if nothing
      else is done.

  Returns:
    An action for each block with several strands.
  """
  with module.context, ir.Location.unknown():
    mlir.inline_all(module)
    outcome = Outcome()
    for function in module.body.operations:
      for block in _blocks(function.operation):
        outcome += _key_block(block)
  return outcome


def _key_block(block: ir.Block) -> Outcome:
  """Keys the strands of a block, if it has several."""
  operations = [op.operation for op in block.operations]
  parent = block.owner.operation
  if parent.name == "stablehlo.while":
    strands = membership.in_body(operations, block)
  else:
    strands = membership.by_slices(
      operations, lambda operation: _num(operation, _PRODUCTS)
    )
  num_strands = len({strand for strand in strands if strand is not None})
  if num_strands < 2:
    return Outcome()
  are_written = any(_num(op, mlir.COLLECTIVES) for op in operations)

  def needs_key(operation: ir.Operation) -> bool:
    if are_written:
      return operation.name in mlir.COLLECTIVES
    # XLA's partitioner has yet to place collectives, and any may need one.
    return operation.name.startswith("stablehlo.")

  for operation, strand in zip(operations, strands, strict=True):
    if strand is not None:
      each = (operation, *mlir.inner_operations(operation))
      for keyed in filter(needs_key, each):
        _set_key(keyed, f"strand {strand}")
  where = mlir.place_of(parent)
  action = f"{where}: collectives of {num_strands} strands stay apart"
  return Outcome(actions=(action,))


def _num(operation: ir.Operation, names: frozenset[str]) -> int:
  """Operations of these names: itself, and in its regions."""
  inner = mlir.inner_operations(operation) if operation.regions else ()
  return sum(op.name in names for op in (operation, *inner))


def _blocks(operation: ir.Operation) -> Iterator[ir.Block]:
  """Blocks that collectives may stand in, the innermost first."""
  for region in operation.regions:
    for block in region.blocks:
      for inner in block.operations:
        yield from _blocks(inner.operation)
  is_loop = operation.name == "stablehlo.while"
  for region in list(operation.regions)[int(is_loop) :]:
    yield from region.blocks


def _set_key(operation: ir.Operation, key: str) -> None:
  name = mlir.COMBINER_KEY
  if not mlir.frontend_attribute(operation, name):
    mlir.set_frontend_attributes(operation, {name: key})
