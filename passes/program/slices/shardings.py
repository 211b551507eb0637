# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Shardings of all values of a program, as XLA's partitioner will see them.

Users write some. The rest follows by Shardy's propagation, which jaxlib offers
as a pass, the one that XLA itself runs first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
import math
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir import passmanager
from jaxlib.mlir.dialects import sdy

from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.mlir import shape_of

CONSTRAINT = "sdy.sharding_constraint"
_MANUAL = "sdy.manual_computation"
_RESHARD = "sdy.reshard"  # What propagation makes of a constraint.
_PROPAGATE = "builtin.module(sdy-propagation-pipeline)"
_NUMBER = "lagom_number"
# Mesh axes, or parts of them, the slowest first.
Axes = tuple[str, ...]


class Shardings:
  """The shardings of the values of a program without calls.

  It describes the program as it was when this was made, and what was `add`ed.
  """

  def __init__(self, module: ir.Module):
    self._sizes = dict(_axis_sizes(module))
    self._of: dict[ir.Value, Any] = {}
    # Of each dimension: jaxlib is slow to say.
    self._axes: dict[Any, tuple[Axes, ...]] = {}
    if self._sizes:
      self._propagate(module)

  def add(self, value: ir.Value, sharding: sdy.TensorShardingAttr) -> None:
    """Takes note of the sharding of a value that is new."""
    self._of[value] = sharding

  def replace(self, value: ir.Value, other: ir.Value) -> None:
    """Gives the sharding of a value to the one that takes its place.

    What is erased must be replaced or `forget`ed: a new value may be where it
    was in memory, and jaxlib takes the two for the same.
    """
    sharding = self._of.pop(value, None)
    if sharding is not None:
      self._of[other] = sharding

  def forget(self, values: Iterable[ir.Value]) -> None:
    """Drops the shardings of values that will be erased."""
    for value in values:
      self._of.pop(value, None)

  def of(self, value: ir.Value) -> Any:
    """The sharding of a value, or None if every device has all of it."""
    return self._of.get(value)

  def axes(self, value: ir.Value, dim: int) -> Axes:
    """The mesh axes over which a dimension of a value is sharded."""
    sharding = self._of.get(value)
    if sharding is None:
      return ()
    if sharding not in self._axes:
      self._axes[sharding] = _axes_of(sharding)
    of_dims = self._axes[sharding]
    return of_dims[dim] if dim < len(of_dims) else ()

  def num_shards(self, value: ir.Value, dim: int) -> int:
    """The number of parts that a dimension of a value is sharded into."""
    return self.size(self.axes(value, dim))

  def num_in_all(self, value: ir.Value) -> int:
    """The number of parts that a value is sharded into."""
    return self.size(self.all_axes(value))

  def all_axes(self, value: ir.Value) -> set[str]:
    """The mesh axes over which any dimension of a value is sharded."""
    rank = len(shape_of(value) or ())
    return {axis for dim in range(rank) for axis in self.axes(value, dim)}

  def size(self, axes: Iterable[str]) -> int:
    """The number of devices along mesh axes."""
    return math.prod(self._size(axis) for axis in axes)

  def _size(self, axis: str) -> int:
    name, _, part = axis.partition("#")
    return int(part.partition(")")[2]) if part else self._sizes[name]

  def _propagate(self, module: ir.Module) -> None:
    copy = mlir.copied(module)
    originals = _numbered(copy, module)
    passmanager.PassManager.parse(_PROPAGATE).run(copy.operation)
    for operation in mlir.inner_operations(copy.operation):
      if _NUMBER not in operation.attributes:
        continue
      number = ir.IntegerAttr(operation.attributes[_NUMBER]).value
      original = originals[number]
      shardings = _of_results(operation)
      self._of |= dict(zip(original.results, shardings, strict=False))
      if original.name == "func.func":
        arguments = original.regions[0].blocks[0].arguments
        self._of |= dict(zip(arguments, _of_arguments(operation), strict=False))
      if original.name == "stablehlo.while":
        for region in original.regions:
          arguments = region.blocks[0].arguments
          self._of |= dict(zip(arguments, shardings, strict=False))


def whole(value: ir.Value, other: Any) -> sdy.TensorShardingAttr:
  """All of a value on every device of the mesh of another sharding."""
  rank = len(shape_of(value) or ())
  return sdy.TensorShardingAttr.get(other.mesh_or_ref, [_not_sharded()] * rank)


def without_axes(sharding: Any, dim: int) -> sdy.TensorShardingAttr:
  """A sharding with all of one dimension on every device."""
  dims = list(sharding.dimension_shardings)
  dims[dim] = _not_sharded()
  return sdy.TensorShardingAttr.get(sharding.mesh_or_ref, dims)


def split(sharding: Any, dim: int, rank: int) -> sdy.TensorShardingAttr:
  """A sharding where a dimension is split in several, the first sharded.

  Args:
    sharding: before.
    dim: the dimension.
    rank: the number of dimensions afterwards.
  """
  dims = list(sharding.dimension_shardings)
  dims[dim + 1 : dim + 1] = [_not_sharded()] * (rank - len(dims))
  return sdy.TensorShardingAttr.get(sharding.mesh_or_ref, dims)


def _not_sharded() -> ir.Attribute:
  return sdy.DimensionShardingAttr.get([], is_closed=True)


def _numbered(copy: ir.Module, module: ir.Module) -> list[ir.Operation]:
  """Numbers the operations of a copy; the original ones, by their numbers.

  What the partitioner leaves alone, the inside of a `shard_map`, has none.
  """
  num_bits = ir.IntegerType.get_signless(64)
  pairs = zip(_operations(copy), _operations(module), strict=True)
  originals = []
  for number, (copied, original) in enumerate(pairs):
    copied.attributes[_NUMBER] = ir.IntegerAttr.get(num_bits, number)
    originals.append(original)
  return originals


def _operations(module: ir.Module) -> list[ir.Operation]:
  found: list[ir.Operation] = []

  def visit(operation: ir.Operation) -> ir.WalkResult:
    found.append(operation)
    is_manual = operation.name == _MANUAL
    return ir.WalkResult.SKIP if is_manual else ir.WalkResult.ADVANCE

  module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
  return found[1:]


def _axis_sizes(module: ir.Module) -> Iterator[tuple[str, int]]:
  """The axes of a program's meshes, if it has meshes at all."""
  for op in module.body.operations:
    operation = op.operation
    if operation.name == "sdy.mesh":
      for raw in sdy.MeshAttr(operation.attributes["mesh"]).axes:
        axis = sdy.MeshAxisAttr(raw)
        yield axis.name, axis.size


def _of_results(operation: ir.Operation) -> list[Any]:
  if operation.name == _RESHARD:
    return [sdy.TensorShardingAttr(operation.attributes["sharding"])]
  if "sdy.sharding" not in operation.attributes:
    return []
  of_results = operation.attributes["sdy.sharding"]
  if sdy.TensorShardingPerValueAttr.isinstance(of_results):
    listed = sdy.TensorShardingPerValueAttr(of_results).shardings
    return [sdy.TensorShardingAttr(sharding) for sharding in listed]
  return [sdy.TensorShardingAttr(of_results)]


def _of_arguments(function: ir.Operation) -> Iterator[Any]:
  if "arg_attrs" not in function.attributes:
    return
  for raw in ir.ArrayAttr(function.attributes["arg_attrs"]):
    attributes = ir.DictAttr(raw)
    has_one = "sdy.sharding" in attributes
    yield (
      sdy.TensorShardingAttr(attributes["sdy.sharding"]) if has_one else None
    )


def _axes_of(sharding: Any) -> tuple[Axes, ...]:
  return tuple(
    tuple(map(_axis, sdy.DimensionShardingAttr(of_dim).axes))
    for of_dim in sharding.dimension_shardings
  )


def _axis(raw: ir.Attribute) -> str:
  axis = sdy.AxisRefAttr(raw)
  if axis.sub_axis_info is None:
    return axis.name
  info = sdy.SubAxisInfoAttr(axis.sub_axis_info)
  return f"{axis.name}#({info.pre_size}){info.size}"
