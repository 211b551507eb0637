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
from jaxlib.mlir import passmanager

from lagom_xla.passes.program.outcome import Outcome
from lagom_xla.passes.program.stablehlo import dependence
from lagom_xla.passes.program.stablehlo import place
from lagom_xla.passes.program.strands import membership as strand_membership

_KEY = "combiner_key"
_ATTRIBUTES = "mhlo.frontend_attributes"

_COLLECTIVES = frozenset(
  f"stablehlo.{name}"
  for name in (
    "all_gather",
    "all_reduce",
    "all_to_all",
    "collective_broadcast",
    "collective_permute",
    "reduce_scatter",
  )
)
_PRODUCTS = frozenset(["stablehlo.convolution", "stablehlo.dot_general"])
_CALLS = frozenset(["call", "func.call"])
# Functions of which every strand now calls a copy.
_REMOVE_UNUSED = "builtin.module(symbol-dce)"


def key_strands(module: ir.Module) -> Outcome:
  """Gives the collectives of different strands different combiner keys.

  Keys that are there already are kept.

  Args:
    module: the program; it is changed.

  Returns:
    An action for each block with several strands.
  """
  with module.context, ir.Location.unknown():
    program = _Program(module)
    outcome = Outcome()
    for function in list(program.functions.values()):
      for block in _blocks(function):
        outcome += program.key(block)
    passmanager.PassManager.parse(_REMOVE_UNUSED).run(module.operation)
  return outcome


class _Program:
  """A module whose strands get keys.

  Attributes:
    functions: its functions by name.
  """

  def __init__(self, module: ir.Module):
    self._body = module.body
    self.functions = {
      ir.StringAttr(op.attributes["sym_name"]).value: op.operation
      for op in module.body.operations
      if op.operation.name == "func.func"
    }
    self._counts: dict[tuple[str, frozenset[str]], int] = {}
    self._copies: dict[tuple[str, str], str] = {}

  def key(self, block: ir.Block) -> Outcome:
    """Keys the strands of a block, if it has several."""
    operations = [op.operation for op in block.operations]
    parent = block.owner.operation
    if parent.name == "stablehlo.while":
      strands = strand_membership.in_body(operations, block)
    else:
      strands = strand_membership.by_slices(
        operations, lambda operation: self._num(operation, _PRODUCTS)
      )
    num_strands = len({strand for strand in strands if strand is not None})
    num_collectives = sum(self._num(op, _COLLECTIVES) for op in operations)
    if num_strands < 2:
      return Outcome()
    for operation, strand in zip(operations, strands, strict=True):
      if strand is not None:
        self._key(operation, f"strand {strand}", every=not num_collectives)
    where = place.of_operation(parent)
    action = f"{where}: collectives of {num_strands} strands stay apart"
    return Outcome(actions=(action,))

  def _key(self, operation: ir.Operation, key: str, *, every: bool) -> None:
    """Keys an operation and all that it contains and calls.

    Args:
      operation: one of a strand.
      key: the strand's.
      every: whether operations other than collectives bear it as well.
    """
    if operation.name in _CALLS:
      # The other strand may call the same function.
      if every or self._num(operation, _COLLECTIVES):
        copy = self._copy(_callee(operation), key, every=every)
        operation.attributes["callee"] = ir.FlatSymbolRefAttr.get(copy)
    elif operation.name in _COLLECTIVES or (
      every and operation.name.startswith("stablehlo.")
    ):
      _set_key(operation, key)
    for inner in dependence.inner_operations(operation):
      self._key(inner, key, every=every)

  def _copy(self, name: str, key: str, *, every: bool) -> str:
    """The name of the copy of a function that one strand calls."""
    if (name, key) not in self._copies:
      copy_name = f"{name}_{key.replace(' ', '_')}"
      while copy_name in self.functions:
        copy_name += "_"
      copy = self.functions[name].clone().operation
      copy.attributes["sym_name"] = ir.StringAttr.get(copy_name)
      self._body.append(copy)
      self.functions[copy_name] = copy
      self._copies[name, key] = copy_name
      for inner in dependence.inner_operations(copy):
        self._key(inner, key, every=every)
    return self._copies[name, key]

  def _num(self, operation: ir.Operation, names: frozenset[str]) -> int:
    """Operations of these names: itself, in its regions, in what it calls."""
    num = int(operation.name in names)
    if operation.name in _CALLS:
      callee = _callee(operation)
      if (callee, names) not in self._counts:
        function = self.functions[callee]
        self._counts[callee, names] = self._num(function, names)
      num += self._counts[callee, names]
    return num + sum(
      self._num(inner.operation, names)
      for region in operation.regions
      for block in region.blocks
      for inner in block.operations
    )


def _blocks(operation: ir.Operation) -> Iterator[ir.Block]:
  """Blocks that collectives may stand in, the innermost first."""
  for region in operation.regions:
    for block in region.blocks:
      for inner in block.operations:
        yield from _blocks(inner.operation)
  is_loop = operation.name == "stablehlo.while"
  for region in list(operation.regions)[int(is_loop) :]:
    yield from region.blocks


def _callee(call: ir.Operation) -> str:
  return ir.FlatSymbolRefAttr(call.attributes["callee"]).value


def _set_key(operation: ir.Operation, key: str) -> None:
  attributes = operation.attributes
  others: dict[str, ir.Attribute] = {}
  if _ATTRIBUTES in attributes:
    present = ir.DictAttr(attributes[_ATTRIBUTES])
    others = {named.name: named.attr for named in present}
  attributes[_ATTRIBUTES] = ir.DictAttr.get(
    {_KEY: ir.StringAttr.get(key), **others}
  )
