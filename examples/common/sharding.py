# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The layout of a model on devices: named axes, and the mesh axes of each.

A model names the axes of its parameters and activations ("embed", "heads",
"batch", …). RULES maps each name to mesh axes, of which a mesh may lack some.
XLA's partitioner derives every collective from this:

- `fsdp` splits the batch, and the "embed" axis of every parameter. A layer's
  weights are gathered just before use and their gradients scattered after it.
- `tp` splits heads, the feed-forward hidden layer and the vocabulary. The
  residual stream is either whole on every device, and each half of a layer ends
  in an all-reduce; or it is split along the sequence ("sequence"), and each
  all-reduce becomes a reduce-scatter and an all-gather in the next half.
- `expert` splits the experts of a Mixture of Experts, and everything else like
  `fsdp`.
"""

from __future__ import annotations

from collections.abc import Sequence
import math
from typing import Any

from flax import linen as nn
import jax
import numpy as np

AxisNames = tuple[str | None, ...]

RULES: tuple[tuple[str, tuple[str, ...]], ...] = (
  ("batch", ("fsdp", "expert")),
  ("embed", ("fsdp", "expert")),
  ("sequence", ("tp",)),
  ("heads", ("tp",)),
  ("kv_heads", ("tp",)),
  ("ffn", ("tp",)),
  ("vocab", ("tp",)),
  ("experts", ("expert",)),
  ("expert_embed", ("fsdp",)),
  ("layers", ()),
  ("head_dim", ()),
)

_GATHERED = ("embed", "expert_embed")


def make_mesh(
  devices: Sequence[jax.Device],
  spec: str = "",
  axes: tuple[str, ...] = ("fsdp", "tp"),
) -> jax.sharding.Mesh:
  """Arranges devices in a mesh.

  Args:
    devices: Devices in order; neighbors share a group of the last axis.
    spec: Sizes such as "fsdp:4,tp:2". An axis left out has size 1; the empty
      string puts all devices on the first axis.
    axes: The axes of the mesh.

  Raises:
    ValueError: The spec is malformed, or does not use every device once.
  """
  sizes = _parse_mesh(spec, axes) if spec else {axes[0]: len(devices)}
  shape = tuple(sizes.get(axis, 1) for axis in axes)
  if math.prod(shape) != len(devices):
    raise ValueError(
      f"The mesh {spec!r} takes {math.prod(shape)} devices and there are"
      f" {len(devices)}: make the product of its sizes {len(devices)}."
    )
  return jax.sharding.Mesh(
    np.asarray(devices).reshape(shape),
    axes,
    axis_types=(jax.sharding.AxisType.Auto,) * len(axes),
  )


def _parse_mesh(spec: str, axes: tuple[str, ...]) -> dict[str, int]:
  sizes = {}
  for part in spec.split(","):
    axis, _, size = part.strip().partition(":")
    if axis not in axes or axis in sizes or not size.isdecimal():
      raise ValueError(
        f"The mesh {spec!r} cannot be read at {part!r}: write sizes for"
        f" {' and '.join(map(repr, axes))}, such as"
        f" '{axes[0]}:4,{axes[-1]}:2'."
      )
    sizes[axis] = int(size)
  return sizes


def mesh_axes(name: str, mesh: jax.sharding.Mesh) -> tuple[str, ...]:
  """Returns the mesh axes that split a named axis."""
  return tuple(axis for axis in dict(RULES)[name] if axis in mesh.shape)


def num_shards(name: str, mesh: jax.sharding.Mesh) -> int:
  """Returns how many parts a named axis is split into."""
  return math.prod(mesh.shape[axis] for axis in mesh_axes(name, mesh))


def check_divisible(
  what: str, size: int, name: str, mesh: jax.sharding.Mesh, num_parts: int = 1
) -> None:
  """Checks that an axis divides evenly.

  Args:
    what: The name of the size in messages.
    size: The size of the axis.
    name: The axis, one of RULES.
    mesh: The devices.
    num_parts: The number of parts that each device splits its shard into.

  Raises:
    ValueError: The size is not a multiple of the mesh axes that split it.
  """
  if size % (num_shards(name, mesh) * num_parts):
    split = ",".join(f"{a}:{mesh.shape[a]}" for a in mesh_axes(name, mesh))
    if num_parts > 1:
      split += f" and {num_parts} micro-batches"
    raise ValueError(
      f"{what} is {size}, which {split} cannot split evenly: choose a multiple,"
      " or another mesh."
    )


def _rules(mesh: jax.sharding.Mesh) -> list[tuple[str, Any]]:
  """RULES for the axes of this mesh, in Flax's form."""
  rules = []
  for name, _ in RULES:
    axes = mesh_axes(name, mesh)
    rules.append((name, axes if len(axes) > 1 else next(iter(axes), None)))
  return rules


def constrain(
  x: jax.Array, axes: AxisNames, mesh: jax.sharding.Mesh
) -> jax.Array:
  """Lays x out as RULES say for its axis names; None leaves an axis whole."""
  return nn.with_logical_constraint(x, axes, rules=_rules(mesh), mesh=mesh)


def gather(
  weight: jax.Array, axes: AxisNames, mesh: jax.sharding.Mesh
) -> jax.Array:
  """Gathers a weight over `fsdp`, leaving its other axes split.

  The weight is first pinned to its stored layout, so that the cast to bfloat16
  before this runs on a shard, and the gather moves the smaller type.
  """
  stored = constrain(weight, axes, mesh)
  whole = tuple(None if axis in _GATHERED else axis for axis in axes)
  return constrain(stored, whole, mesh)


def partition_spec(
  axes: AxisNames, mesh: jax.sharding.Mesh
) -> jax.sharding.PartitionSpec:
  """Returns the PartitionSpec of an array with these axis names."""
  spec = nn.logical_to_mesh_axes(axes, _rules(mesh))
  return spec or jax.sharding.PartitionSpec()


def named_shardings(boxed: Any, mesh: jax.sharding.Mesh) -> Any:
  """Returns the NamedSharding of each value of a tree boxed with axis names."""
  specs = nn.get_partition_spec(boxed)
  return nn.logical_to_mesh_sharding(specs, mesh, _rules(mesh))
