# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The layout of the model on devices: named axes, and where each one goes.

The model names the axes of its parameters and activations ("embed", "heads",
"batch", …). RULES sends each name to a mesh axis, `fsdp` or `tp`, and XLA's
partitioner derives every collective from that:

- `fsdp` splits the batch, and the "embed" axis of every parameter. A layer's
  weights are gathered just before use and their gradients scattered after it.
- `tp` splits heads, the SwiGLU hidden layer and the vocabulary. The residual
  stream is whole on every device, so each half of a layer ends in an
  all-reduce.
"""

from __future__ import annotations

from collections.abc import Sequence
import math
from typing import Any

from flax import linen as nn
import jax
import numpy as np

from config import LlamaConfig

AxisNames = tuple[str | None, ...]

MESH_AXES = ("fsdp", "tp")

RULES: tuple[tuple[str, str | None], ...] = (
  ("batch", "fsdp"),
  ("embed", "fsdp"),
  ("heads", "tp"),
  ("kv_heads", "tp"),
  ("ffn", "tp"),
  ("vocab", "tp"),
  ("layers", None),
  ("head_dim", None),
)


def make_mesh(
  devices: Sequence[jax.Device], spec: str = ""
) -> jax.sharding.Mesh:
  """Arranges devices in a mesh with the axes (fsdp, tp).

  Args:
    devices: Devices in order; neighbours share a `tp` group.
    spec: Sizes such as "fsdp:4,tp:2". An axis left out has size 1; the empty
      string puts all devices on `fsdp`.

  Raises:
    ValueError: The spec cannot be read, or does not use every device once.
  """
  sizes = _parse_mesh(spec) if spec else {"fsdp": len(devices)}
  shape = tuple(sizes.get(axis, 1) for axis in MESH_AXES)
  if math.prod(shape) != len(devices):
    raise ValueError(
      f"The mesh {spec!r} takes {math.prod(shape)} devices and there are"
      f" {len(devices)}: make the product of its sizes {len(devices)}."
    )
  return jax.sharding.Mesh(
    np.asarray(devices).reshape(shape),
    MESH_AXES,
    axis_types=(jax.sharding.AxisType.Auto,) * len(MESH_AXES),
  )


def _parse_mesh(spec: str) -> dict[str, int]:
  sizes = {}
  for part in spec.split(","):
    axis, _, size = part.strip().partition(":")
    if axis not in MESH_AXES or axis in sizes or not size.isdecimal():
      raise ValueError(
        f"The mesh {spec!r} cannot be read at {part!r}: write sizes for"
        " 'fsdp' and 'tp', such as 'fsdp:4,tp:2'."
      )
    sizes[axis] = int(size)
  return sizes


def check_divisible(
  config: LlamaConfig, mesh: jax.sharding.Mesh, batch_size: int
) -> None:
  """Checks that every split axis divides evenly.

  Raises:
    ValueError: A size is not a multiple of the mesh axis that splits it.
  """
  for name, size, axis in (
    ("batch_size", batch_size, "fsdp"),
    ("d_model", config.d_model, "fsdp"),
    ("num_heads", config.num_heads, "tp"),
    ("num_kv_heads", config.num_kv_heads, "tp"),
    ("d_ffn", config.d_ffn, "tp"),
    ("vocab_size", config.vocab_size, "tp"),
  ):
    if size % mesh.shape[axis]:
      raise ValueError(
        f"{name} is {size}, which {axis}:{mesh.shape[axis]} cannot split"
        " evenly: choose a multiple, or another mesh."
      )


def constrain(
  x: jax.Array, axes: AxisNames, mesh: jax.sharding.Mesh
) -> jax.Array:
  """Lays x out as RULES say for its axis names; None leaves an axis whole."""
  return nn.with_logical_constraint(x, axes, rules=RULES, mesh=mesh)


def gather(
  weight: jax.Array, axes: AxisNames, mesh: jax.sharding.Mesh
) -> jax.Array:
  """Gathers a weight over `fsdp`, leaving its `tp` axes split.

  The weight is first pinned to its stored layout: what was done to it before
  (the cast to bfloat16) then happens on a shard, and the gather moves the
  smaller type.
  """
  stored = constrain(weight, axes, mesh)
  whole = tuple(None if axis == "embed" else axis for axis in axes)
  return constrain(stored, whole, mesh)


def named_shardings(boxed: Any, mesh: jax.sharding.Mesh) -> Any:
  """Returns the NamedSharding of each value of a tree boxed with axis names."""
  return nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, RULES)
