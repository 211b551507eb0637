# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Work that every device repeats: products that sharding does not divide.

A program before the partitioner has the shapes of whole arrays, and so the
FLOPs of all devices. If each device computes much more than its share, some
arrays are replicated that should be sharded. XLA does not report that, and all
mesh axes may be in use: a sharded state with replicated activations looks like
FSDP.
"""

from __future__ import annotations

from collections.abc import Iterator
import math

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from lagom_xla.compile import target as target_lib
from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program import mlir

# Padding of uneven shards, and small products that all devices compute on
# purpose, stay well below.
_MOST_OF_A_PART = 1.5
_PRODUCTS = frozenset(["stablehlo.dot_general", "stablehlo.convolution"])
# XLA turns it into other products, with more FLOPs.
_RAGGED = "ragged_dot"
# After these, shapes are those of one device.
_TO_LOCAL = frozenset(["SPMDFullToShardShape", "xla.sdy.GlobalToLocalShape"])


def warning(target: target_lib.Target, device_flops: int) -> str:
  """A warning about products that every device repeats, or "".

  `device_flops` are those of one device's products in the schedule.
  """
  whole = flops_of_all_devices(target)
  part = whole / target.cluster.num_devices
  if not part or device_flops <= _MOST_OF_A_PART * part:
    return ""
  repeated = 1 - part / device_flops
  return (
    f"Each GPU computes {device_flops / 1e12:,.4g} TFLOP of matmuls and"
    f" convolutions, {device_flops / part:.1f} times its share of the"
    f" {whole / 1e12:,.4g} of {target.name}: {repeated:.0%} of it repeats what"
    " other GPUs compute, because arrays are not sharded. If the step needs a"
    " mesh or axis rules around it, return a context manager that yields (step,"
    " arguments) from within them (docs/targets.md)."
  )


def flops_of_all_devices(target: target_lib.Target) -> int:
  """FLOPs of a program's products on all devices; 0 if unknown."""
  if isinstance(target, target_lib.ModuleTarget):
    is_whole = not target.lowered.has_forms
  elif isinstance(target, target_lib.StepTarget):
    is_whole = mlir.is_partitioned(target.lowered.stablehlo)
  else:
    return 0
  if not is_whole:
    return 0
  try:
    return _Program(target.lowered.stablehlo.operation).flops("main")
  except _UnknownError:
    return 0


class _UnknownError(Exception):
  """A program whose FLOPs do not follow from its shapes."""


class _Program:
  """The functions of a program, each counted once."""

  def __init__(self, module: ir.Operation):
    self._functions = mlir.functions_by_name(module)
    self._sizes = _axis_sizes(module)
    self._flops: dict[str, int] = {}

  def flops(self, name: str) -> int:
    """FLOPs of the products in a function, and in those that it calls."""
    if name not in self._flops:
      self._flops[name] = self._flops_in(self._functions[name])
    return self._flops[name]

  def _flops_in(self, operation: ir.Operation) -> int:
    return sum(self._flops_of(inner) for inner in _inside(operation))

  def _flops_of(self, operation: ir.Operation) -> int:
    name = operation.name
    if name in _PRODUCTS:
      return counted_loops.flops(operation)
    if mlir.is_call(operation):
      return self.flops(mlir.callee(operation))
    if name == "stablehlo.custom_call":
      target = ir.StringAttr(operation.attributes["call_target_name"]).value
      if target in _TO_LOCAL:
        raise _UnknownError
    if _RAGGED in name:
      raise _UnknownError
    inside = self._flops_in(operation)
    if not inside:
      return 0
    if name == "stablehlo.while":
      loop = counted_loops.read(operation)
      if isinstance(loop, str):
        raise _UnknownError
      return inside * loop.num_trips
    if name == "sdy.manual_computation":
      axes = sdy.ManualAxesAttr(operation.attributes["manual_axes"])
      # Devices that run it on local shapes.
      return inside * math.prod(self._sizes[axis] for axis in axes)
    return inside


def _axis_sizes(module: ir.Operation) -> dict[str, int]:
  """Sizes of all mesh axes; unknown if two of one name differ."""
  sizes: dict[str, int] = {}
  for operation in _inside(module):
    if operation.name == "sdy.mesh":
      for each in sdy.MeshAttr(operation.attributes["mesh"]).axes:
        axis = sdy.MeshAxisAttr(each)
        if sizes.setdefault(axis.name, axis.size) != axis.size:
          raise _UnknownError
  return sizes


def _inside(operation: ir.Operation) -> Iterator[ir.Operation]:
  for region in operation.regions:
    for block in region.blocks:
      for inner in block.operations:
        yield inner.operation
