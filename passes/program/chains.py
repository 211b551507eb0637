# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Chains of collectives and products that can be cut in pieces together.

A chain begins at all-gathers (or all-to-alls), or at products, and ends at
reduce-scatters, all-reduces or all-to-alls, or at products. Along one dimension
every operation of it is free: the tokens that are gathered, or another one,
such as the batch, along which whole sequences stay together and attention is
free, too. Values without that dimension, such as weights, are shared by all
pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
import dataclasses
import io
import math

from jaxlib.mlir import ir

from lagom_xla.passes.program import dimensions
from lagom_xla.passes.program import inline
from lagom_xla.passes.program import place
from lagom_xla.passes.program import reach
from lagom_xla.passes.program.cuts import Cut
from lagom_xla.passes.program.cuts import num_bytes
from lagom_xla.passes.program.cuts import shape_of

NUM_PIECES = (2, 4, 8)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Chain:
  """A chain, as data.

  Attributes:
    label: its first and last collective, each with its number among those of
      its kind, and the dimension of the first one's operand: the same for
      every program that is lowered alike.
    where: the place of its first collective in the user's code.
    collectives: StableHLO names, in program order.
    nccl_bytes: of all its collectives, each the larger of what goes in and
      what comes out, per device.
    num_products: matrix products in it.
    pieces: the numbers of pieces that it can be cut into.
  """

  label: str
  where: str
  collectives: tuple[str, ...]
  nccl_bytes: int
  num_products: int
  pieces: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Link:
  """An operation of a chain.

  Attributes:
    operation: in a module without calls.
    cut: of its results; None where it adds up over the pieces.
    operand_cuts: of its operands; None of those that every piece needs whole.
  """

  operation: ir.Operation
  cut: Cut | None
  operand_cuts: dimensions.Cuts


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Located:
  """A chain and where it is.

  Attributes:
    chain: as data.
    links: its operations, in program order.
  """

  chain: Chain
  links: tuple[Link, ...]


def find(module: ir.Module) -> tuple[Chain, ...]:
  """The chains of a program, in program order; it stays as it is."""
  with module.context, ir.Location.unknown():
    return tuple(located.chain for located in locate(without_calls(module)))


def without_calls(module: ir.Module) -> ir.Module:
  """A copy whose calls are inlined: a chain may go through them."""
  buffer = io.BytesIO()
  module.operation.write_bytecode(buffer)
  copy = ir.Module.parse(buffer.getvalue())
  inline.inline_all(copy)
  return copy


def locate(module: ir.Module) -> tuple[Located, ...]:
  """The chains of a module without calls, in program order."""
  blocks = [
    reach.Block(block)
    for function in module.body.operations
    for block in _blocks_with_collectives(function.operation)
  ]
  names = _names(blocks)
  return tuple(
    _located(block, reached, names)
    for block in blocks
    for reached in _chains_of(block)
  )


def _blocks_with_collectives(operation: ir.Operation) -> Iterator[ir.Block]:
  for region in operation.regions:
    for block in region.blocks:
      operations = [op.operation for op in block.operations]
      if any(op.name in reach.COLLECTIVES for op in operations):
        yield block
      for inner in operations:
        if len(inner.regions):
          yield from _blocks_with_collectives(inner)


def _names(blocks: list[reach.Block]) -> dict[ir.Operation, str]:
  """Collectives by their kinds, numbered in program order."""
  names: dict[ir.Operation, str] = {}
  num: dict[str, int] = {}
  for block in blocks:
    for operation in block.operations:
      if operation.name in reach.COLLECTIVES:
        kind = operation.name.removeprefix("stablehlo.")
        names[operation] = f"{kind}.{num.setdefault(kind, 0)}"
        num[kind] += 1
  return names


def _chains_of(block: reach.Block) -> list[reach.Reached]:
  opened = [*_opened(block, _gathered), *_opened(block, _not_gathered)]
  covered = {operation for chain in opened for operation in chain}
  chains = [*opened, *_closed(block, covered)]
  return sorted(chains, key=lambda c: min(map(block.position.__getitem__, c)))


def _opened(
  block: reach.Block, cuts_of: Callable[[ir.Operation], list[Cut]]
) -> list[reach.Reached]:
  """Chains from collectives on; those that share an operation are one."""
  chain_of: dict[ir.Operation, reach.Reached] = {}
  for opening in block.operations:
    if opening.name not in reach.OPENING:
      continue
    for cut in cuts_of(opening):
      reached = block.forward(opening, cut)
      if not _is_chain(opening, reached, needs_closing=cuts_of is not _gathered):
        continue
      shared = {
        id(chain_of[op]): chain_of[op] for op in reached if op in chain_of
      }
      if any(
        chain.get(op, cut) != cut
        for chain in shared.values()
        for op, cut in reached.items()
      ):
        continue
      for chain in shared.values():
        reached = reached | chain
      if not block.is_independent(reached):
        continue
      chain_of |= dict.fromkeys(reached, reached)
      break
  return list({id(chain): chain for chain in chain_of.values()}.values())


def _is_chain(
  opening: ir.Operation, reached: reach.Reached, *, needs_closing: bool
) -> bool:
  """Whether there is a product, and a closing where there must be.

  Weights that are gathered before they are needed have columns that are free;
  that makes no chain.
  """
  names = {operation.name for operation in reached if operation != opening}
  if needs_closing and names.isdisjoint(reach.CLOSING):
    return False
  return reach.PRODUCT in names and bool(_pieces(reached))


def _closed(
  block: reach.Block, covered: set[ir.Operation]
) -> Iterator[reach.Reached]:
  """Chains from products to a collective that is in no other chain."""
  for closing in block.operations:
    if closing.name not in reach.CLOSING or closing in covered:
      continue
    for cut in [*_scattered(closing), *_not_scattered(closing)]:
      reached = block.backward(closing, cut)
      if reached and _pieces(reached) and block.is_independent(reached):
        yield reached
        break


def _located(
  block: reach.Block, reached: reach.Reached, names: Mapping[ir.Operation, str]
) -> Located:
  ordered = sorted(reached, key=block.position.__getitem__)
  collectives = [op for op in ordered if op.name in reach.COLLECTIVES]
  first, last = collectives[0], collectives[-1]
  cut = reach.needed_cuts(first, reached)[0]
  assert cut is not None
  ends = "-".join(dict.fromkeys([names[first], names[last]]))
  chain = Chain(
    label=f"{ends}:{cut.dim}",
    where=place.of_operation(first),
    collectives=tuple(op.name for op in collectives),
    nccl_bytes=sum(map(_nccl_bytes, collectives)),
    num_products=sum(op.name == reach.PRODUCT for op in ordered),
    pieces=_pieces(reached),
  )
  links = tuple(
    Link(
      operation=operation,
      cut=reached[operation],
      operand_cuts=reach.needed_cuts(operation, reached),
    )
    for operation in ordered
  )
  return Located(chain=chain, links=links)


def _pieces(reached: reach.Reached) -> tuple[int, ...]:
  """The numbers of pieces that every value of a chain can be cut into."""
  limit = 0
  for operation, cut in reached.items():
    needed = reach.needed_cuts(operation, reached)
    for value, value_cut in [
      (operation.results[0], cut),
      *zip(operation.operands, needed, strict=True),
    ]:
      if value_cut is not None:
        limit = math.gcd(limit, value_cut.max_pieces(shape_of(value) or ()))
  return tuple(k for k in NUM_PIECES if limit % k == 0)


def _nccl_bytes(collective: ir.Operation) -> int:
  return max(
    sum(map(num_bytes, values))
    for values in (collective.operands, collective.results)
  )


def _gathered(opening: ir.Operation) -> list[Cut]:
  """The cut of an opening's results along what it gathers."""
  return [Cut(_gathered_dim(opening), dimensions.num_devices(opening))]


def _not_gathered(opening: ir.Operation) -> list[Cut]:
  rank = len(shape_of(opening.results[0]) or ())
  return [Cut(dim) for dim in range(rank) if dim != _gathered_dim(opening)]


def _gathered_dim(opening: ir.Operation) -> int:
  name = "all_gather_dim"
  if opening.name == "stablehlo.all_to_all":
    name = "concat_dimension"
  return ir.IntegerAttr(opening.attributes[name]).value


def _scattered(closing: ir.Operation) -> list[Cut]:
  """The cut of a closing's results along what it scatters."""
  name = "scatter_dimension"
  if name not in closing.attributes:
    return []
  return [Cut(ir.IntegerAttr(closing.attributes[name]).value)]


def _not_scattered(closing: ir.Operation) -> list[Cut]:
  rank = len(shape_of(closing.results[0]) or ())
  return [Cut(dim) for dim in range(rank) if [Cut(dim)] != _scattered(closing)]
