# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The layout of a train step over GPUs, with explicit collectives.

The step is one `jax.shard_map` over the axes (data, model). The program has
everything that each GPU runs, and XLA only combines, pipelines and schedules
the collectives.

- "fsdp": parameters are split over `data` and gathered layer by layer; the
  gather's transpose scatters the gradients.
- "tp": products are split over `model`, first by columns, then by rows. A pair
  of them needs one sum, of activations forward and of gradients backward
  (Megatron-LM, arXiv 1909.08053, section 3). With `splits_tokens`, each GPU
  holds a part of each sequence between the pairs: tokens are gathered before a
  pair, and partial sums are scattered after it (sequence parallelism, arXiv
  2205.05198, section 4.2.2).
- "cp": each sequence is split over `model`, and attention gathers its keys and
  values; parameters are split over `model`, too, and gathered as with "fsdp".
  Causal attention is not balanced over the parts: the last has the most.
- "ep": experts are split over `data`, and tokens are sent to them. Everything
  else is replicated, and each layer sums its gradients as soon as they exist.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import functools
from typing import Any, Literal

import jax
import numpy as np

DATA, MODEL = "data", "model"

# The mesh axis that splits each dimension of a parameter.
Axes = Sequence[str | None]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
  """A kind of parallelism, and how many GPUs each axis has.

  Attributes:
    kind: see the module's docstring.
    data: GPUs that hold different sequences.
    model: GPUs that share each product, or each sequence.
    splits_tokens: with "tp", see the module's docstring.
    shards_state: with "tp", whether the GPUs along `data` share the parameters
      and Adam's state. Then weights are gathered and gradients scattered once
      per step (ZeRO's first stage, arXiv 1910.02054).
  """

  kind: Literal["fsdp", "tp", "ep", "cp"]
  data: int = 1
  model: int = 1
  splits_tokens: bool = False
  shards_state: bool = False

  @property
  def whole(self) -> Layout:
    """The same layout on one GPU, where parameters have their full shapes."""
    return dataclasses.replace(self, data=1, model=1)

  def mesh(self, devices: Any) -> jax.sharding.Mesh:
    """The devices in the axes (data, model); neighbors share products.

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
    """The mesh axis that splits each dimension of a parameter."""
    axes: list[str | None] = [None] * num_dims
    if self.kind == "tp" and model_dim is not None:
      axes[model_dim] = MODEL
    if self.kind == "fsdp" or (self.kind == "ep" and is_expert):
      axes[0] = DATA
    if self.kind == "cp":
      axes[0] = MODEL
    if self.shards_state and None in axes:
      axes[axes.index(None)] = DATA
    return tuple(axes)

  def part(
    self, shape: tuple[int, ...], axes: tuple[str | None, ...]
  ) -> tuple[int, ...]:
    """The shape of one GPU's part of a parameter in its layers."""
    data = 1 if self.shards_state else self.data
    sizes = {None: 1, DATA: data, MODEL: self.model}
    return tuple(
      size // sizes[axis] for size, axis in zip(shape, axes, strict=True)
    )

  def ready(self, weight: jax.Array, *, is_expert: bool) -> jax.Array:
    """A parameter as used in products."""
    if self.data > 1 and self.kind == "fsdp":
      return jax.lax.all_gather(weight, DATA, axis=0, tiled=True)
    if self._shares_sequences:
      return jax.lax.all_gather(weight, MODEL, axis=0, tiled=True)
    if self.data > 1 and self.kind == "ep" and not is_expert:
      return _sum_gradient(weight, DATA)
    return weight

  @property
  def _shares_products(self) -> bool:
    return self.kind == "tp" and self.model > 1

  @property
  def num_product_parts(self) -> int:
    """GPUs that share each product."""
    return self.model if self.kind == "tp" else 1

  @property
  def _shares_sequences(self) -> bool:
    return self.kind == "cp" and self.model > 1

  def enter(self, x: jax.Array) -> jax.Array:
    """[B, S, D] before a product by columns: whole here, partial gradients."""
    if not self._shares_products:
      return x
    if self.splits_tokens:
      return jax.lax.all_gather(x, MODEL, axis=1, tiled=True)
    return _sum_gradient(x, MODEL)

  def leave(self, x: jax.Array) -> jax.Array:
    """[B, S, D] after a product by rows: partial sums, whole gradients."""
    if self._shares_products and self.splits_tokens:
      return jax.lax.psum_scatter(x, MODEL, scatter_dimension=1, tiled=True)
    return self.total(x)

  def total(self, x: jax.Array) -> jax.Array:
    """The sum over the GPUs that share a product; whole gradients."""
    return _sum(x, MODEL) if self._shares_products else x

  def greatest(self, x: jax.Array) -> jax.Array:
    """The maximum over the GPUs that share a product; without gradients."""
    x = jax.lax.stop_gradient(x)
    return jax.lax.pmax(x, MODEL) if self._shares_products else x

  def model_index(self) -> jax.Array | int:
    """The index of this GPU among those that share a product."""
    return jax.lax.axis_index(MODEL) if self._shares_products else 0

  def sequence_part(self, tokens: jax.Array) -> jax.Array:
    """This GPU's part of sequences [B, S]; all if they are not split."""
    if not self._shares_sequences:
      return tokens
    size = tokens.shape[1] // self.model
    first = jax.lax.axis_index(MODEL) * size
    return jax.lax.dynamic_slice_in_dim(tokens, first, size, axis=1)

  def first_position(self, size: int) -> jax.Array | int:
    """The first position of this GPU's part of a sequence, of this size."""
    return jax.lax.axis_index(MODEL) * size if self._shares_sequences else 0

  def whole_sequence(self, x: jax.Array) -> jax.Array:
    """[B, S, ...] of all GPUs that share a sequence, in order."""
    if not self._shares_sequences:
      return x
    return jax.lax.all_gather(x, MODEL, axis=1, tiled=True)

  @property
  def num_losses(self) -> int:
    """The number of GPUs with losses of their own tokens."""
    return self.data * (self.model if self.kind == "cp" else 1)

  def add_losses(self, loss: jax.Array) -> jax.Array:
    """The sum of these GPUs' losses."""
    if self._shares_sequences:
      loss = jax.lax.psum(loss, MODEL)
    return jax.lax.psum(loss, DATA) if self.data > 1 else loss

  def gathered(self, weight: jax.Array, axes: Axes) -> jax.Array:
    """A parameter for a step's layers, gathered once per step."""
    if not (self.shards_state and self.data > 1 and DATA in axes):
      return weight
    return jax.lax.all_gather(weight, DATA, axis=axes.index(DATA), tiled=True)

  def added(self, gradient: jax.Array, axes: Axes) -> jax.Array:
    """The sum of gradients that is left to the end of the step."""
    if self._shares_products and self.splits_tokens and MODEL not in axes:
      gradient = jax.lax.psum(gradient, MODEL)
    if self.data == 1 or self.kind in ("fsdp", "ep"):
      return gradient
    if self.shards_state and DATA in axes:
      return jax.lax.psum_scatter(
        gradient, DATA, scatter_dimension=axes.index(DATA), tiled=True
      )
    return jax.lax.psum(gradient, DATA)


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
