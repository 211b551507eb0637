# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Micro-batches of one batch, each differentiated on its own.

With a single batch, nothing can hide a collective: the next operation needs its
result. With micro-batches, the same step consists of several independent
computations, so one computes while another communicates. One line of a step
changes:

    loss, grads = jax.value_and_grad(loss_fn)(params, batch)
    loss, grads = lagom_xla.micro_batches(loss_fn)(params, batch)

With `flax.nnx`, differentiate a function of the parameters:

    graphdef, params, rest = nnx.split(model, nnx.Param, ...)

    def loss_fn(params, rest, batch):
      model = nnx.merge(graphdef, params, rest, copy=True)
      return loss_of(model, batch)

    grad_fn = lagom_xla.micro_batches(loss_fn, batch_argnums=2)
    loss, grads = grad_fn(params, rest, batch)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
import functools
import operator
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from lagom_xla import errors

# An argument: its position, or its name if it is passed by name.
_Place = int | str
# How to combine the leaves of micro-batches.
_RULES = ("batch", "mean", "sum", "last")
_REDUCIBLE = {"mean": jnp.inexact, "sum": jnp.number}


def micro_batches(
  loss_fn: Callable[..., Any],
  num: int = 2,
  *,
  argnums: int | Sequence[int] = 0,
  batch_argnums: int | Sequence[int] = 1,
  batch_argnames: str | Sequence[str] = (),
  rng_argnums: int | Sequence[int] = (),
  rng_argnames: str | Sequence[str] = (),
  has_aux: bool = False,
  aux: Any = None,
  reduction: Literal["mean", "sum"] = "mean",
  allow_int: bool = False,
) -> Callable[..., Any]:
  """`jax.value_and_grad`, computed for `num` micro-batches side by side.

  Micro-batch j holds the elements j, j + num, j + 2 num, … of the batch. If the
  batch is sharded and `num` divides each device's part, each device takes its
  micro-batches from its own part, and no data moves.

  The loss must be the mean or the sum of a term for each element of the batch.
  Loss and gradients then equal those of `jax.value_and_grad` up to the order of
  one addition, and have the same dtypes, in which they are added. If the loss
  is normalized over the batch in another way (by a number of tokens that
  differs between elements, say), use "sum" and divide afterwards.

  Every typed key (`jax.random.key`) that is not an element of the batch is
  folded with the micro-batch's index. So each micro-batch draws its own random
  numbers, which also differ from the whole batch's. With num = 1 keys are
  unchanged.

  Args:
    loss_fn: The loss of its arguments, a scalar, or (loss, aux).
    num: The number of micro-batches; with 1 this is `jax.value_and_grad`.
    argnums: The arguments to differentiate, as in `jax.value_and_grad`. The
      gradient of a batch argument comes back in the order of the batch.
    batch_argnums: The arguments to split: pytrees of arrays with one leading
      axis. Each micro-batch gets scalars and leaves that are not arrays whole.
    batch_argnames: The same for arguments that are passed by name.
    rng_argnums: The arguments whose leaves are legacy keys
      (`jax.random.PRNGKey`, uint32), which are folded like typed keys.
    rng_argnames: The same for arguments that are passed by name.
    has_aux: Whether loss_fn returns (loss, aux).
    aux: How to combine the leaves of aux: a pytree, or a prefix of one, of
      "batch" (in the order of the batch), "mean", "sum" and "last" (the last
      micro-batch's). None decides by the leaf's shape: "batch" if the whole
      batch's leading axis is `num` times a micro-batch's; `reduction` if both
      shapes are equal.
    reduction: How the loss combines the elements of the batch.
    allow_int: As in `jax.value_and_grad`.

  Returns:
    A function of loss_fn's arguments that returns what
    `jax.value_and_grad(loss_fn, argnums, has_aux)` returns.

  Raises:
    BatchError: an argument above is invalid; or, when the function is called,
      the batch cannot be split into `num` or aux cannot be combined.
  """
  _check(num, reduction, aux)
  if num == 1:
    return jax.value_and_grad(
      loss_fn, argnums, has_aux=has_aux, allow_int=allow_int
    )
  grad_places = _integers(argnums)
  batch_places = (*_integers(batch_argnums), *_names(batch_argnames))
  rng_places = (*_integers(rng_argnums), *_names(rng_argnames))
  differentiate = jax.value_and_grad(
    _share_of_loss(loss_fn, num if reduction == "mean" else 1, has_aux),
    grad_places,
    has_aux=True,
    allow_int=allow_int,
  )

  @functools.wraps(loss_fn)
  def value_and_grad(*args: Any, **kwargs: Any) -> Any:
    whole: dict[_Place, Any] = {**dict(enumerate(args)), **kwargs}
    batch = _given(batch_places, whole, len(args))
    legacy_keys = _given(rng_places, whole, len(args))
    _check_batch({place: whole[place] for place in batch}, num)

    def of_part(index: int) -> Any:
      part = {
        place: jax.tree.map(
          functools.partial(
            _part,
            index=index,
            num=num,
            in_batch=place in batch,
            is_legacy_key=place in legacy_keys,
          ),
          value,
        )
        for place, value in whole.items()
      }
      return differentiate(
        *(part[i] for i in range(len(args))), **{k: part[k] for k in kwargs}
      )

    values, grads = zip(*map(of_part, range(num)), strict=True)
    losses, auxes = zip(*values, strict=True)
    joined = tuple(
      _join_grads(of_one, in_batch=place % len(args) in batch)
      for place, of_one in zip(
        grad_places, zip(*grads, strict=True), strict=True
      )
    )
    grad = joined if isinstance(argnums, Sequence) else joined[0]
    loss = _join("sum", losses)
    if not has_aux:
      return loss, grad
    rules = aux
    if rules is None:
      whole_aux = jax.eval_shape(lambda: loss_fn(*args, **kwargs)[1])
      rules = _rules_by_shape(whole_aux, auxes[0], num, reduction)
    return (loss, _join(rules, auxes)), grad

  return value_and_grad


def _check(num: int, reduction: str, aux: Any) -> None:
  if operator.index(num) < 1:
    raise errors.BatchError(
      f"The number of micro-batches is {num}: give 1 or more."
    )
  if reduction not in ("mean", "sum"):
    raise errors.BatchError(
      f"The reduction is {reduction!r}: give 'mean' or 'sum', as the loss"
      " combines the elements of its batch."
    )
  for rule in jax.tree.leaves(aux):
    if rule not in _RULES:
      raise errors.BatchError(
        f"aux has {rule!r}: give {', '.join(map(repr, _RULES))}."
      )


def _integers(places: int | Sequence[int]) -> tuple[int, ...]:
  if isinstance(places, Sequence):
    return tuple(operator.index(place) for place in places)
  return (operator.index(places),)


def _names(places: str | Sequence[str]) -> tuple[str, ...]:
  return (places,) if isinstance(places, str) else tuple(places)


def _share_of_loss(
  loss_fn: Callable[..., Any], divisor: int, has_aux: bool
) -> Callable[..., Any]:
  """A micro-batch's share of the loss, and aux.

  Dividing the loss instead of the gradients keeps each gradient as large as the
  whole batch's, for which float16 loss scales are chosen.
  """

  def share(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
    returned = loss_fn(*args, **kwargs)
    if has_aux and not (isinstance(returned, tuple) and len(returned) == 2):
      raise errors.BatchError(
        "With has_aux the loss function must return (loss, aux), and it"
        f" returned a {type(returned).__name__}."
      )
    loss: Any = returned
    part_aux = None
    if has_aux:
      loss, part_aux = returned
    shape, dtype = jnp.shape(loss), jnp.result_type(loss)
    if shape or not jnp.issubdtype(dtype, jnp.floating):
      raise errors.BatchError(
        f"The loss is a {dtype}{list(shape)}: return one real number, the mean"
        " or the sum over the batch."
      )
    return loss / divisor, part_aux

  return share


def _given(
  places: Sequence[_Place], whole: Collection[_Place], num_positional: int
) -> set[_Place]:
  """The places, counted from the first argument; raises if one is missing."""
  found = {
    place + num_positional if isinstance(place, int) and place < 0 else place
    for place in places
  }
  for place in found:
    if place not in whole:
      raise errors.BatchError(
        f"This call has no argument {place!r}, which micro_batches expects:"
        " name positional arguments in batch_argnums and rng_argnums, and"
        " keyword arguments in batch_argnames and rng_argnames."
      )
  return found


def _check_batch(batch: Mapping[_Place, Any], num: int) -> None:
  """Checks that all arrays of the batch have one size that num divides."""
  sizes = {
    f"argument {place!r}" + jax.tree_util.keystr(path): np.shape(leaf)[0]
    for place, value in batch.items()
    for path, leaf in jax.tree_util.tree_leaves_with_path(value)
    if np.ndim(leaf)
  }
  if not sizes:
    places = ", ".join(f"argument {place!r}" for place in batch)
    raise errors.BatchError(
      f"There is no array to split in {places}: name the batch in"
      " batch_argnums or batch_argnames."
    )
  first, size = next(iter(sizes.items()))
  for leaf, other in sizes.items():
    if other != size:
      raise errors.BatchError(
        f"The batch has {size} elements in {first} and {other} in {leaf}: move"
        " arrays without a batch axis to an argument that is not split."
      )
  if size % num:
    raise errors.BatchError(
      f"The batch of {size} in {first} cannot be split into {num} micro-batches"
      f" of one size: make it a multiple of {num}."
    )


def _part(
  leaf: Any, *, index: int, num: int, in_batch: bool, is_legacy_key: bool
) -> Any:
  """The part of an argument's leaf that micro-batch `index` of `num` gets."""
  if in_batch and np.ndim(leaf):
    # The new axis comes second, which keeps the batch's sharding.
    elements = leaf.reshape(leaf.shape[0] // num, num, *leaf.shape[1:])
    return elements[:, index]
  dtype = getattr(leaf, "dtype", None)
  if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key):
    return _folded(leaf, index)
  if is_legacy_key:
    keys = jax.random.wrap_key_data(jnp.asarray(leaf))
    return jax.random.key_data(_folded(keys, index))
  return leaf


def _folded(keys: jax.Array, index: int) -> jax.Array:
  fold = jax.vmap(lambda key: jax.random.fold_in(key, index))
  return fold(keys.reshape(-1)).reshape(keys.shape)


def _join(rules: Any, parts: Sequence[Any]) -> Any:
  """Combines what micro-batches returned, leaf by leaf."""
  try:
    whole = jax.tree.broadcast(rules, parts[0])
  except ValueError as error:
    raise errors.BatchError(
      f"aux is not a prefix of the aux of the loss function: {error}"
    ) from error
  return jax.tree.map(_join_leaf, whole, *parts)


def _join_grads(parts: Sequence[Any], *, in_batch: bool) -> Any:
  """Adds gradients; puts those of the batch itself back into its order."""

  def rule(leaf: Any) -> str:
    if in_batch and np.ndim(leaf):
      return "batch"
    # The gradient of an integer has dtype float0, which cannot be added.
    return "last" if leaf.dtype == jax.dtypes.float0 else "sum"

  return _join(jax.tree.map(rule, parts[0]), parts)


def _rules_by_shape(whole: Any, part: Any, num: int, reduction: str) -> Any:
  """The rule of each leaf of aux, from its shape for the whole batch."""

  def rule(path: Any, of_whole: Any, of_part: Any) -> str:
    shape, dtype = np.shape(of_part), of_whole.dtype
    if of_whole.shape == shape and jnp.issubdtype(dtype, _REDUCIBLE[reduction]):
      return reduction
    if shape and of_whole.shape == (num * shape[0], *shape[1:]):
      return "batch"
    raise errors.BatchError(
      f"It is unclear how to combine aux{jax.tree_util.keystr(path)}:"
      f" {dtype}{list(shape)} in each of {num} micro-batches,"
      f" {dtype}{list(of_whole.shape)} in the whole batch. Pass"
      " micro_batches(aux=...)."
    )

  return jax.tree_util.tree_map_with_path(rule, whole, part)


def _join_leaf(rule: str, *leaves: Any) -> Any:
  if rule == "last":
    return leaves[-1]
  if rule == "batch":
    # Leaf j has the elements j, j + num, j + 2 num, … of the batch.
    float0 = leaves[0].dtype == jax.dtypes.float0
    stacked = (np if float0 else jnp).stack(leaves, axis=1)
    return stacked.reshape(-1, *stacked.shape[2:])
  dtype = jnp.result_type(leaves[0])
  if not jnp.issubdtype(dtype, _REDUCIBLE[rule]):
    raise errors.BatchError(
      f"aux has a leaf of {dtype}, which has no {rule}: choose another rule."
    )
  total = functools.reduce(operator.add, leaves)
  return total / len(leaves) if rule == "mean" else total
