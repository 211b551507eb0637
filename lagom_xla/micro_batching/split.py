# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Parts of the arguments of a loss, one for each micro-batch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lagom_xla import errors

# An argument: its position, or its name where it is given by name.
Place = int | str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
  """The arguments of one call of a loss.

  Attributes:
    whole: All of them.
    batch: Places of those whose arrays are split, from the first argument.
    legacy_keys: Places of those whose leaves are keys of dtype uint32.
  """

  whole: Mapping[Place, Any]
  batch: Collection[Place]
  legacy_keys: Collection[Place]

  @property
  def num_positional(self) -> int:
    """How many are given by position."""
    return sum(isinstance(place, int) for place in self.whole)

  def is_split(self, argnum: int) -> bool:
    """Whether this argument is, which may be counted from the last one."""
    return argnum % self.num_positional in self.batch

  def parts(self, num: int) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """What each micro-batch gets, by position and by name.

    Raises:
      BatchError: The batch cannot be split into so many.
    """
    _check_batch({place: self.whole[place] for place in self.batch}, num)
    for index in range(num):
      part: dict[Any, Any] = {
        place: self._part(place, index, num) for place in self.whole
      }
      yield [part.pop(n) for n in range(self.num_positional)], part

  def _part(self, place: Place, index: int, num: int) -> Any:
    """What micro-batch `index` of `num` gets of an argument, a pytree."""
    in_batch, legacy_keys = place in self.batch, place in self.legacy_keys

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

    return jax.tree.map(part_of, self.whole[place])


def arguments(
  args: Sequence[Any],
  kwargs: Mapping[str, Any],
  batch: Sequence[Place],
  legacy_keys: Sequence[Place],
) -> Arguments:
  """The arguments of a call; places may be counted from the last one.

  Raises:
    BatchError: The call does not have one of these places.
  """
  whole: dict[Place, Any] = {**dict(enumerate(args)), **kwargs}
  return Arguments(
    whole=whole,
    batch=_given(batch, whole),
    legacy_keys=_given(legacy_keys, whole),
  )


def _given(places: Sequence[Place], whole: Mapping[Place, Any]) -> set[Place]:
  """These places, counted from the first argument, if all are given."""
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


def _check_batch(batch: Mapping[Place, Any], num: int) -> None:
  """Checks that all arrays of the batch have one size, which num divides."""
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


def _folded(keys: jax.Array, index: int) -> jax.Array:
  fold = jax.vmap(lambda key: jax.random.fold_in(key, index))
  return fold(keys.reshape(-1)).reshape(keys.shape)
