# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Strand keys, which keep XLA from combining collectives of two strands.

Below their thresholds (30 MiB), XLA's combiners merge collectives of two
strands. The result waits for both strands, and both wait for it. The combiners
only join collectives with equal frontend attributes `combiner_key`, so each
strand gets its own key. Collectives that XLA's partitioner adds later inherit
the attributes of the operation that needs them, so every operation gets the
key. On jaxlib 0.10.2, a reduce-scatter that XLA makes of an all-reduce loses
the key, and in all versions so does a collective that only a constraint asks
for.

Strands begin at *sources*. In a loop's body, these are the values that change
from trip to trip, without counters. Values combined in an operation are one
source. Arrays that only one strand reads, such as those saved for its backward
pass, belong to it. In any other block, sources are slices of one array, with
equally many products that depend on each slice alone. (Layers slice their
weights out of one array, too, but everything after the first depends on several
slices.) Operations that depend on one source alone belong to its strand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
import functools
import operator

from jaxlib.mlir import ir

from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.form import Outcome

# The strand of each operation of a block; None if it has none or several.
_Strands = Sequence[int | None]
_PRODUCTS = frozenset([mlir.CONVOLUTION, mlir.PRODUCT])


def key_strands(module: ir.Module) -> Outcome:
  """Gives the collectives of different strands different combiner keys.

  Keeps existing keys. Inlines calls even if it does nothing else. Returns an
  action for each block with several strands.
  """
  with module.context, ir.Location.unknown():
    mlir.inline_all(module)
    outcome = Outcome()
    for function in module.body.operations:
      for block in _blocks(function.operation):
        outcome += _key_block(block)
  return outcome


def _blocks(operation: ir.Operation) -> Iterator[ir.Block]:
  """Blocks that may hold collectives, the innermost first."""
  for inner in mlir.direct_operations(operation):
    yield from _blocks(inner)
  is_loop = operation.name == mlir.LOOP
  for region in list(operation.regions)[int(is_loop) :]:
    yield from region.blocks


def _key_block(block: ir.Block) -> Outcome:
  """Keys the strands of a block, if it has several."""
  operations = [op.operation for op in block.operations]
  parent = block.owner.operation
  if parent.name == mlir.LOOP:
    strands = _in_body(operations, block)
  else:
    strands = _by_slices(operations)
  num_strands = len({strand for strand in strands if strand is not None})
  if num_strands < 2:
    return Outcome()
  are_written = any(_num(op, mlir.COLLECTIVES) for op in operations)
  for operation, strand in zip(operations, strands, strict=True):
    if strand is None:
      continue
    for each in (operation, *mlir.inner_operations(operation)):
      # XLA's partitioner may still add a collective to any operation.
      needs_key = (
        each.name in mlir.COLLECTIVES
        if are_written
        else each.name.startswith("stablehlo.")
      )
      if needs_key and not mlir.frontend_attribute(each, mlir.COMBINER_KEY):
        key = {mlir.COMBINER_KEY: f"strand {strand}"}
        mlir.set_frontend_attributes(each, key)
  where = mlir.place_of(parent)
  action = f"{where}: collectives of {num_strands} strands stay apart"
  return Outcome(actions=(action,))


def _num(operation: ir.Operation, names: frozenset[str]) -> int:
  """The number of operations with these names: it and those in its regions."""
  inner = mlir.inner_operations(operation) if len(operation.regions) else ()
  return sum(op.name in names for op in (operation, *inner))


def _in_body(operations: Sequence[ir.Operation], body: ir.Block) -> _Strands:
  """The strands of all operations of a loop's body, in order."""
  returned = mlir.returned(body)
  changing: dict[ir.Value, int] = {
    argument: 1 << number
    for number, argument in enumerate(body.arguments)
    if argument != returned[number] and not _is_counter(argument)
  }
  known = mlir.depends(operations, changing)
  met = [mlir.bits_of(operation, known) for operation in operations]
  # Masks of carries; carries that are combined, or become each other, are one
  # source.
  sources: list[int] = []
  become = [
    mask | known.get(value, 0)
    for argument, value in zip(body.arguments, returned, strict=True)
    if (mask := changing.get(argument))
  ]
  for mask in dict.fromkeys((*met, *become)):
    if mask:
      joined = [source for source in sources if source & mask]
      sources = [source for source in sources if not source & mask]
      sources.append(mask | _union(joined))
  numbers: dict[int, int] = {}
  strands = [
    numbers.setdefault(
      next(source for source in sources if source & mask), len(numbers)
    )
    if mask
    else None
    for mask in met
  ]
  return _with_recomputed(operations, strands, changing)


def _with_recomputed(
  operations: Sequence[ir.Operation],
  strands: _Strands,
  changing: Mapping[ir.Value, int],
) -> _Strands:
  """Adds values to strands that no trip changes and only one strand uses.

  A backward pass recomputes values of its forward pass from arrays that no trip
  changes. No trip changes the weights either, but all strands use them.
  """
  inside = {result for op in operations for result in op.results}
  unchanged: dict[ir.Value, int] = {}
  for operation in operations:
    for value in mlir.used_values(operation):
      if not (value in inside or value in changing or _is_counter(value)):
        unchanged.setdefault(value, 1 << len(unchanged))
  known = mlir.depends(operations, unchanged)
  used = [mlir.bits_of(operation, known) for operation in operations]
  users: dict[int, int] = {}
  for mask, strand in zip(used, strands, strict=True):
    if strand is not None:
      users[strand] = users.get(strand, 0) | mask
  own = {
    strand: mask & ~_union(users[s] for s in users if s != strand)
    for strand, mask in users.items()
  }
  return [
    _only(mask, own) if strand is None else strand
    for mask, strand in zip(used, strands, strict=True)
  ]


def _by_slices(operations: Sequence[ir.Operation]) -> _Strands:
  """The strands of all operations of a block that is not a loop's body."""
  # Array -> where a slice of it begins -> bits of these slices.
  places_of: dict[ir.Value, dict[str, int]] = {}
  cut_out: dict[ir.Value, int] = {}
  for operation in operations:
    place = _place(operation)
    if place is not None:
      bit = cut_out[operation.results[0]] = 1 << len(cut_out)
      places = places_of.setdefault(operation.operands[0], {})
      places[place] = places.get(place, 0) | bit
  known = mlir.depends(operations, cut_out)
  depends = [mlir.bits_of(operation, known) for operation in operations]
  products = [
    (mask, num)
    for operation, mask in zip(operations, depends, strict=True)
    if mask and (num := _num(operation, _PRODUCTS))
  ]
  strand_masks: dict[int, int] = {}
  for masks in (list(places.values()) for places in places_of.values()):
    if len(masks) > 1 and _are_of_micro_batches(masks, products):
      for strand, mask in enumerate(masks):
        strand_masks[strand] = strand_masks.get(strand, 0) | mask
  return [_only(mask, strand_masks) for mask in depends]


def _place(operation: ir.Operation) -> str | None:
  """Where a slice begins; None if unknown, or if it is no slice."""
  if operation.name == "stablehlo.slice":
    return str(operation.attributes["start_indices"])
  if operation.name != "stablehlo.dynamic_slice":
    return None
  starts = []
  for index in list(operation.operands)[1:]:
    owner = mlir.defining_operation(index)
    if owner is None or owner.name != "stablehlo.constant":
      return None
    starts.append(str(owner.attributes["value"]))
  return " ".join(starts)


def _are_of_micro_batches(
  masks: Sequence[int], products: Iterable[tuple[int, int]]
) -> bool:
  """Whether equally many products depend on each slice alone."""
  whole = sum(masks)
  num_alone = dict.fromkeys(masks, 0)
  for depends, num in products:
    if depends & whole in num_alone:
      num_alone[depends & whole] += num
  return min(num_alone.values()) > 0 and len(set(num_alone.values())) == 1


def _only(depends: int, strand_masks: Mapping[int, int]) -> int | None:
  """The only strand in a mask of dependences; None if there are several."""
  strands = [s for s, mask in strand_masks.items() if depends & mask]
  return strands[0] if len(strands) == 1 else None


def _is_counter(value: ir.Value) -> bool:
  shape = value.type
  return (
    isinstance(shape, ir.RankedTensorType)
    and shape.rank == 0
    and isinstance(shape.element_type, ir.IntegerType)
  )


def _union(masks: Iterable[int]) -> int:
  return functools.reduce(operator.or_, masks, 0)
