# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The layout of a train step over GPUs, with every collective written out.

The step is one `jax.shard_map` over the axes (data, model): what each GPU runs
is what is written, and XLA decides only how to combine, pipeline and schedule
the collectives.

- "fsdp": parameters are split over `data` and gathered layer by layer; the
  gather's transpose scatters the gradients.
- "tp": products are split over `model`, first by columns, then by rows. A pair
  of them needs one sum, of activations forward and of gradients backward
  (Megatron-LM, arXiv 1909.08053, section 3).
- "ep": experts are split over `data`, and tokens are sent to them. All else is
  on every GPU, and each layer sums its gradients as soon as they are there.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal

import jax
import numpy as np

DATA, MODEL = "data", "model"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
  """A kind of parallelism, and how many GPUs each axis has.

  Attributes:
    kind: see the module's docstring.
    data: GPUs that hold different sequences.
    model: GPUs that share each product.
  """

  kind: Literal["fsdp", "tp", "ep"]
  data: int = 1
  model: int = 1

  @property
  def whole(self) -> Layout:
    """The same, on one GPU: its parameters have their full shapes."""
    return dataclasses.replace(self, data=1, model=1)

  def mesh(self, devices: Any) -> jax.sharding.Mesh:
    """The devices in the axes (data, model); neighbours share products.

    Raises:
      ValueError: the layout is for another number of devices.
    """
    if self.data * self.model != len(devices):
      raise ValueError(
        f"{self} takes {self.data * self.model} devices and there are"
        f" {len(devices)}: give as many."
      )
    return jax.sharding.Mesh(
      np.asarray(devices).reshape(self.data, self.model), (DATA, MODEL)
    )

  def axes(
    self, num_dims: int, *, model_dim: int | None, is_expert: bool
  ) -> tuple[str | None, ...]:
    """The mesh axis that each dimension of a parameter is split over."""
    axes: list[str | None] = [None] * num_dims
    if self.kind == "tp" and model_dim is not None:
      axes[model_dim] = MODEL
    if self.kind == "fsdp" or (self.kind == "ep" and is_expert):
      axes[0] = DATA
    return tuple(axes)

  def part(
    self, shape: tuple[int, ...], axes: tuple[str | None, ...]
  ) -> tuple[int, ...]:
    """The part of a shape that one GPU holds."""
    sizes = {None: 1, DATA: self.data, MODEL: self.model}
    return tuple(
      size // sizes[axis] for size, axis in zip(shape, axes, strict=True)
    )

  def ready(self, weight: jax.Array, *, is_expert: bool) -> jax.Array:
    """A parameter as products use it."""
    if self.data > 1 and self.kind == "fsdp":
      return jax.lax.all_gather(weight, DATA, axis=0, tiled=True)
    if self.data > 1 and self.kind == "ep" and not is_expert:
      return _sum_gradient(weight, DATA)
    return weight

  def enter(self, x: jax.Array) -> jax.Array:
    """Before a product by columns: whole here, partial gradients to sum."""
    return _sum_gradient(x, MODEL) if self.model > 1 else x

  def leave(self, x: jax.Array) -> jax.Array:
    """After a product by rows: partial sums, whole gradients."""
    return _sum(x, MODEL) if self.model > 1 else x

  def greatest(self, x: jax.Array) -> jax.Array:
    """The maximum over the GPUs that share a product; without gradients."""
    x = jax.lax.stop_gradient(x)
    return jax.lax.pmax(x, MODEL) if self.model > 1 else x

  def model_index(self) -> jax.Array | int:
    """Which of the GPUs that share a product this is."""
    return jax.lax.axis_index(MODEL) if self.model > 1 else 0

  def add_data(self, tree: Any) -> Any:
    """Sums what the GPUs along `data` have, once per step."""
    if self.data == 1:
      return tree
    return jax.tree.map(lambda x: jax.lax.psum(x, DATA), tree)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _sum_gradient(x: jax.Array, axis: str) -> jax.Array:
  del axis
  return x


_sum_gradient.defvjp(
  lambda x, axis: (x, None),
  lambda axis, _, gradient: (jax.lax.psum(gradient, axis),),
)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _sum(x: jax.Array, axis: str) -> jax.Array:
  return jax.lax.psum(x, axis)


_sum.defvjp(
  lambda x, axis: (jax.lax.psum(x, axis), None),
  lambda axis, _, gradient: (gradient,),
)
