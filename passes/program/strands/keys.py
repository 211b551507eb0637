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

The strand of an operation follows from what an operation depends on, not from
names. Strands begin at *sources*. In a loop's body those are the values that
change from trip to trip, counters aside; values that meet in an operation are
one source, and arrays that only one strand reads, such as what it saved for its
backward pass, belong to it. In any other block they are the slices that
micro-batches are taken by: slices of one array, on each of which alone as many
products depend as on each other one. (Layers cut their weights out of one array
too, but all that follows the first depends on several of them.) An operation
that depends on one source alone, however many weights and counters it needs, is
of that strand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import functools
import operator

from jaxlib.mlir import ir

from lagom_xla.passes import dependencies
from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.form import Outcome

# By operation of a block: its strand, or None where it has none or several.
Strands = Sequence[int | None]

_SLICES = frozenset(["stablehlo.slice", "stablehlo.dynamic_slice"])


def strands_in_body(
  operations: Sequence[ir.Operation], body: ir.Block
) -> Strands:
  """The strands of a loop's body.

  Args:
    operations: all of the body, in order.
    body: the body.
  """
  returned = operations[-1].operands
  changing: dict[ir.Value, int] = {
    argument: number
    for number, argument in enumerate(body.arguments)
    if argument != returned[number] and not _is_counter(argument)
  }
  # Carries of the loop; those that meet are one.
  carries: dependencies.DisjointSets[int] = dependencies.DisjointSets()
  root_of = dict(changing)
  met: list[int | None] = []
  for operation in operations[:-1]:
    used = mlir.used_values(operation)
    roots = [root_of[value] for value in used if value in root_of]
    for root in roots:
      carries.join(root, roots[0])
    met.append(roots[0] if roots else None)
    if roots:
      root_of.update((result, roots[0]) for result in operation.results)
  for number in changing.values():
    if returned[number] in root_of:
      carries.join(root_of[returned[number]], number)
  numbers: dict[int, int] = {}
  strands = [
    None
    if carry is None
    else numbers.setdefault(carries.find(carry), len(numbers))
    for carry in (*met, None)
  ]
  return _with_recomputed(operations, strands, set(changing))


def _with_recomputed(
  operations: Sequence[ir.Operation],
  strands: Strands,
  changing: set[ir.Value],
) -> Strands:
  """The same with what no trip changes but one strand alone uses.

  A backward pass computes again what its own forward pass had, from arrays that
  no trip changes, as none changes the weights. The weights serve every strand.
  """
  results = {result for op in operations for result in op.results}
  bit_of: dict[ir.Value, int] = {}
  for operation in operations:
    for value in mlir.used_values(operation):
      if not (value in results or value in changing or _is_counter(value)):
        bit_of.setdefault(value, 1 << len(bit_of))
  depends = _depends(operations, {}, bit_of)
  users: dict[int, int] = {}
  for mask, strand in zip(depends, strands, strict=True):
    if strand is not None:
      users[strand] = users.get(strand, 0) | mask
  own = {
    strand: mask & ~_union(users[s] for s in users if s != strand)
    for strand, mask in users.items()
  }
  return [
    _only(mask, own) if strand is None else strand
    for mask, strand in zip(depends, strands, strict=True)
  ]


def _union(masks: Iterable[int]) -> int:
  return functools.reduce(operator.or_, masks, 0)


def by_slices(
  operations: Sequence[ir.Operation],
  num_products: Callable[[ir.Operation], int],
) -> Strands:
  """The strands of a block that is no loop's body.

  Args:
    operations: all of the block, in order.
    num_products: how many products an operation makes, with what it calls.
  """
  groups = _slices_of_one_array(operations)
  source_of = {
    operation: 1 << number
    for number, operation in enumerate(
      op for group in groups for members in group for op in members
    )
  }
  depends = _depends(operations, source_of, {})
  products = [
    (mask, num)
    for operation, mask in zip(operations, depends, strict=True)
    if mask and (num := num_products(operation))
  ]
  strand_masks: dict[int, int] = {}
  for group in groups:
    masks = [sum(source_of[op] for op in members) for members in group]
    if _is_of_micro_batches(masks, products):
      for strand, mask in enumerate(masks):
        strand_masks[strand] = strand_masks.get(strand, 0) | mask
  return [_only(mask, strand_masks) for mask in depends]


def _slices_of_one_array(
  operations: Iterable[ir.Operation],
) -> list[list[list[ir.Operation]]]:
  """By array: by place that is cut out of it: the operations that cut it."""
  arrays: dict[ir.Value, dict[str, list[ir.Operation]]] = {}
  for operation in operations:
    place = _place(operation) if operation.name in _SLICES else None
    if place is not None:
      places = arrays.setdefault(operation.operands[0], {})
      places.setdefault(place, []).append(operation)
  return [
    list(places.values()) for places in arrays.values() if len(places) > 1
  ]


def _place(operation: ir.Operation) -> str | None:
  """Where a slice begins; None where that is not known."""
  if operation.name == "stablehlo.slice":
    return str(operation.attributes["start_indices"])
  starts = []
  for index in list(operation.operands)[1:]:
    owner = mlir.defining_operation(index)
    if owner is None or owner.name != "stablehlo.constant":
      return None
    starts.append(str(owner.attributes["value"]))
  return " ".join(starts)


def _depends(
  operations: Iterable[ir.Operation],
  source_of: Mapping[ir.Operation, int],
  bit_of: Mapping[ir.Value, int],
) -> list[int]:
  """The sources that each operation depends on, as bits.

  Args:
    operations: all of a block, in order.
    source_of: the bit of each operation that is a source.
    bit_of: the bit of each value that is one.
  """
  known = dict(bit_of)
  depends = []
  for operation in operations:
    mask = source_of.get(operation, 0)
    for value in mlir.used_values(operation):
      mask |= known.get(value, 0)
    depends.append(mask)
    if mask:
      known.update((result, mask) for result in operation.results)
  return depends


def _is_of_micro_batches(
  masks: Sequence[int], products: Iterable[tuple[int, int]]
) -> bool:
  """Whether as many products depend on each slice alone as on each other."""
  whole = sum(masks)
  num_alone = dict.fromkeys(masks, 0)
  for depends, num in products:
    if depends & whole in num_alone:
      num_alone[depends & whole] += num
  return min(num_alone.values()) > 0 and len(set(num_alone.values())) == 1


def _only(depends: int, strand_masks: Mapping[int, int]) -> int | None:
  """The strand that something depends on, if it is one alone."""
  strands = [s for s, mask in strand_masks.items() if depends & mask]
  return strands[0] if len(strands) == 1 else None


def _is_counter(value: ir.Value) -> bool:
  shape = value.type
  return (
    isinstance(shape, ir.RankedTensorType)
    and shape.rank == 0
    and isinstance(shape.element_type, ir.IntegerType)
  )


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
    strands = strands_in_body(operations, block)
  else:
    strands = by_slices(
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
