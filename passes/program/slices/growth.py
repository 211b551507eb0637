# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Growth of chains: from the collectives of a block to all that joins them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
import math

from lagom_xla.passes.program.mlir import shape_of
from lagom_xla.passes.program.slices import collective_dimensions
from lagom_xla.passes.program.slices import implied
from lagom_xla.passes.program.slices import reach
from lagom_xla.passes.program.slices.implied import Cut

NUM_PIECES = (2, 4, 8)


def chains_of(block: reach.Block) -> list[reach.Reached]:
  """The chains of a block, in program order."""
  opened = [*_opened(block, _gathered), *_opened(block, _not_gathered)]
  covered = {i for chain in opened for i in chain}
  return sorted([*opened, *_closed(block, covered)], key=min)


def _opened(
  block: reach.Block, cuts_of: Callable[[reach.Block, int], list[Cut]]
) -> list[reach.Reached]:
  """Chains from collectives on; those that share an operation are one."""
  chain_of: dict[int, reach.Reached] = {}
  for opening, name in enumerate(block.names):
    if name not in reach.OPENING:
      continue
    for cut in cuts_of(block, opening):
      reached = block.forward(opening, cut)
      names = {block.names[i] for i in reached if i != opening}
      # Weights that are gathered before they are needed have columns that are
      # free: that makes no chain.
      if reach.PRODUCT not in names or (
        cuts_of is not _gathered and names.isdisjoint(reach.CLOSING)
      ):
        continue
      merged = _merged(reached, chain_of)
      if _can_be_cut(block, merged):
        chain_of |= dict.fromkeys(merged, merged)
        break
  return list({id(chain): chain for chain in chain_of.values()}.values())


def _merged(
  reached: reach.Reached, chain_of: Mapping[int, reach.Reached]
) -> reach.Reached:
  """With all chains that share an operation; empty if that is cut otherwise."""
  merged = dict(reached)
  for i in reached:
    chain = chain_of.get(i, {})
    if any(merged.get(j, cut) != cut for j, cut in chain.items()):
      return {}
    merged |= chain
  return merged


def _closed(block: reach.Block, covered: set[int]) -> Iterator[reach.Reached]:
  """Chains from products to a collective that is in no other chain."""
  for closing, name in enumerate(block.names):
    if name not in reach.CLOSING or closing in covered:
      continue
    for cut in _along(block, closing):
      reached = block.backward(closing, cut)
      if _can_be_cut(block, reached):
        yield reached
        break


def _can_be_cut(block: reach.Block, reached: reach.Reached) -> bool:
  return (
    bool(reached)
    and block.is_independent(reached)
    and bool(possible(block, reached))
  )


def possible(block: reach.Block, reached: reach.Reached) -> tuple[int, ...]:
  """The numbers of pieces that every value of a chain can be cut into."""
  limit = 0
  for i, cut in reached.items():
    operation, needed = block.operations[i], block.needed_cuts(i, reached)
    for value, value_cut in [
      (operation.results[0], cut),
      *zip(operation.operands, needed, strict=True),
    ]:
      if value_cut is not None:
        limit = math.gcd(limit, value_cut.max_pieces(shape_of(value) or ()))
  return tuple(k for k in NUM_PIECES if limit % k == 0)


def _gathered(block: reach.Block, opening: int) -> list[Cut]:
  """The cut of an opening's results along what it gathers."""
  operation = block.operations[opening]
  if implied.is_implied(operation):
    cut = implied.cut_of(operation)
    return [cut] if cut else []
  dim = collective_dimensions.gathered_dim(operation)
  assert dim is not None
  return [Cut(dim, collective_dimensions.num_devices(operation))]


def _not_gathered(block: reach.Block, opening: int) -> list[Cut]:
  gathered = {cut.dim for cut in _gathered(block, opening)}
  return [cut for cut in _cuts(block, opening) if cut.dim not in gathered]


def _along(block: reach.Block, closing: int) -> list[Cut]:
  """Cuts of a closing's results: first along what it scatters."""
  operation = block.operations[closing]
  scattered = collective_dimensions.scattered_dim(operation)
  if implied.is_implied(operation):
    cut = implied.cut_of(operation)
    scattered = cut.dim if cut else None
  return sorted(_cuts(block, closing), key=lambda cut: cut.dim != scattered)


def _cuts(block: reach.Block, collective: int) -> list[Cut]:
  """A cut of a collective's result along each dimension.

  Of one that the partitioner shards, every device has a part of each piece.
  """
  result = block.operations[collective].results[0]
  dims = range(len(shape_of(result) or ()))
  return [Cut(dim, block.shardings.num_shards(result, dim)) for dim in dims]
