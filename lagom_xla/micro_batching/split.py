# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Parts of the arguments of a loss, one for each micro-batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lagom_xla import errors

# An argument: its position, or its name where it is given by name.
Place = int | str


def given(places: Sequence[Place], whole: Mapping[Place, Any]) -> set[Place]:
  """Returns these places, counted from the first argument, if all are given.

  Raises:
    BatchError: a call does not have one of them.
  """
  num_positional = sum(isinstance(place, int) for place in whole)
  found: set[Place] = set()
  for place in places:
    from_end = isinstance(place, int) and place < 0
    found.add(place + num_positional if from_end else place)
  for place in found:
    if place not in whole:
      raise errors.BatchError(
        f"This call has no {_name(place)}, which micro_batches was told of:"
        " name the batch, and keys, as they are given, by batch_argnums or"
        " batch_argnames, rng_argnums or rng_argnames."
      )
  return found


def _name(place: Place) -> str:
  return f"argument {place!r}"


def check_batch(batch: Mapping[Place, Any], num: int) -> None:
  """Checks that all arrays of the batch have one size, which num divides.

  Raises:
    BatchError: they have not; or there is none.
  """
  sizes = {
    _name(place) + jax.tree_util.keystr(path): np.shape(leaf)[0]
    for place, value in batch.items()
    for path, leaf in jax.tree_util.tree_leaves_with_path(value)
    if np.ndim(leaf)
  }
  if not sizes:
    raise errors.BatchError(
      f"There is no array to split in {', '.join(map(_name, batch))}: name the"
      " batch by batch_argnums or batch_argnames."
    )
  first, size = next(iter(sizes.items()))
  for leaf, other in sizes.items():
    if other != size:
      raise errors.BatchError(
        f"The batch has {size} elements in {first} and {other} in {leaf}: move"
        " what has no batch axis to an argument that is not split."
      )
  if size % num:
    raise errors.BatchError(
      f"The batch of {size} in {first} cannot be split into {num} micro-batches"
      f" of one size: make it a multiple of {num}."
    )


def part(
  value: Any, index: int, num: int, *, in_batch: bool, legacy_keys: bool
) -> Any:
  """Returns what micro-batch `index` of `num` gets of an argument.

  Args:
    value: The argument, a pytree.
    index: Of the micro-batch.
    num: The number of micro-batches.
    in_batch: Whether the argument's arrays are split.
    legacy_keys: Whether its leaves are keys of dtype uint32.
  """

  def part_of(leaf: Any) -> Any:
    if in_batch and np.ndim(leaf):
      # The new axis comes second: a sharding of the batch's stays as it is.
      elements = leaf.reshape(leaf.shape[0] // num, num, *leaf.shape[1:])
      return elements[:, index]
    dtype = getattr(leaf, "dtype", None)
    if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key):
      return _folded(leaf, index)
    if legacy_keys:
      keys = jax.random.wrap_key_data(jnp.asarray(leaf))
      return jax.random.key_data(_folded(keys, index))
    return leaf

  return jax.tree.map(part_of, value)


def _folded(keys: jax.Array, index: int) -> jax.Array:
  fold = jax.vmap(lambda key: jax.random.fold_in(key, index))
  return fold(keys.reshape(-1)).reshape(keys.shape)
