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

from collections.abc import Iterator, Mapping
import dataclasses

from jaxlib.mlir import ir

from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.mlir import num_bytes
from lagom_xla.passes.program.slices import implied
from lagom_xla.passes.program.slices import reach
from lagom_xla.passes.program.slices.implied import Cut
from lagom_xla.passes.program.slices.implied import Cuts
from lagom_xla.passes.program.slices.shardings import Shardings


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
    number: of the operation, which tells it from all others of the module.
    operation: in a module without calls.
    cut: of its results; None where it adds up over the pieces.
    operand_cuts: of its operands; None of those that every piece needs whole.
  """

  number: int
  operation: ir.Operation
  cut: Cut | None
  operand_cuts: Cuts


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
    copy = mlir.copied(module)
    found = locate(copy, prepare(copy))
    return tuple(located.chain for located in found)


def prepare(module: ir.Module) -> Shardings:
  """Writes out, in place, what chains are found among.

  Calls are inlined, as a chain may go through them, and the collectives that
  XLA's partitioner will make are noted on sharding constraints.

  Returns:
    The shardings of the module's values.
  """
  mlir.inline_all(module)
  shardings = Shardings(module)
  implied.find_gathers(module, shardings)
  implied.find_sums(module, shardings)
  return shardings


def locate(module: ir.Module, shardings: Shardings) -> tuple[Located, ...]:
  """The chains of a module that is prepared, in program order.

  Operations do not keep their module alive: whoever has the chains must.
  """
  blocks = [
    reach.Block(block, shardings)
    for function in module.body.operations
    if _runs(function.operation)
    for block in _blocks_with_collectives(function.operation)
  ]
  num_before: dict[str, int] = {}
  found: list[Located] = []
  first = 0
  for block in blocks:
    labels = _labels(block, num_before)
    for reached in reach.chains_of(block):
      found.append(_located(block, reached, labels, first))
    first += len(block.operations)
  return tuple(found)


def _runs(function: ir.Operation) -> bool:
  """Whether a function is the program itself; nothing calls any other one."""
  visibility = "sym_visibility"
  if visibility not in function.attributes:
    return True
  return ir.StringAttr(function.attributes[visibility]).value != "private"


def _blocks_with_collectives(operation: ir.Operation) -> Iterator[ir.Block]:
  for region in operation.regions:
    for block in region.blocks:
      operations = [op.operation for op in block.operations]
      if any(implied.kind(op) in reach.COLLECTIVES for op in operations):
        yield block
      for inner in operations:
        if len(inner.regions):
          yield from _blocks_with_collectives(inner)


def _labels(block: reach.Block, num_before: dict[str, int]) -> dict[int, str]:
  """Collectives by their kinds, numbered in program order."""
  labels: dict[int, str] = {}
  for i, name in enumerate(block.names):
    if name in reach.COLLECTIVES:
      kind = name.removeprefix("stablehlo.")
      labels[i] = f"{kind}.{num_before.setdefault(kind, 0)}"
      num_before[kind] += 1
  return labels


def _located(
  block: reach.Block,
  reached: reach.Reached,
  labels: Mapping[int, str],
  first: int,
) -> Located:
  links = tuple(
    Link(
      number=first + i,
      operation=block.operations[i],
      cut=reached[i],
      operand_cuts=block.needed_cuts(i, reached),
    )
    for i in sorted(reached)
  )
  collectives = [i for i in sorted(reached) if i in labels]
  ends = dict.fromkeys([labels[collectives[0]], labels[collectives[-1]]])
  opening = block.operations[collectives[0]]
  cut = block.needed_cuts(collectives[0], reached)[0]
  assert cut is not None
  chain = Chain(
    label=f"{'-'.join(ends)}:{cut.dim}",
    where=mlir.place_of(opening),
    collectives=tuple(block.names[i] for i in collectives),
    nccl_bytes=sum(_nccl_bytes(block.operations[i]) for i in collectives),
    num_products=sum(block.names[i] == reach.PRODUCT for i in reached),
    pieces=reach.possible(block, reached),
  )
  return Located(chain=chain, links=links)


def _nccl_bytes(collective: ir.Operation) -> int:
  if implied.is_implied(collective):
    return implied.nccl_bytes(collective)
  return max(
    sum(map(num_bytes, values))
    for values in (collective.operands, collective.results)
  )


# A frontend attribute: it stays with a collective until it is scheduled.
CHAIN = "lagom_chain"


def tag(module: ir.Module) -> None:
  """Marks the collectives of all chains with the labels of the chains.

  The frontend attribute `CHAIN` stays with a collective until it is scheduled.
  Calls are inlined.

  Args:
    module: a lowered program.
  """
  with module.context, ir.Location.unknown():
    shardings = prepare(module)
    labels: dict[int, list[str]] = {}
    collectives: dict[int, ir.Operation] = {}
    for located in locate(module, shardings):
      for link in located.links:
        if implied.kind(link.operation) in reach.COLLECTIVES:
          labels.setdefault(link.number, []).append(located.chain.label)
          collectives[link.number] = link.operation
    for number, of_chains in labels.items():
      of_all = ",".join(of_chains)
      mlir.set_frontend_attributes(collectives[number], {CHAIN: of_all})
    implied.remove_notes(module)
