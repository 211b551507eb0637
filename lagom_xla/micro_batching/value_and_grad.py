# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Value and gradient of a loss, of one micro-batch after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import functools
import operator
from typing import Any, Literal

import jax
import jax.numpy as jnp

from lagom_xla import errors
from lagom_xla.micro_batching import join
from lagom_xla.micro_batching import split


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

  Micro-batch j holds the elements j, j + num, j + 2 num, … of the batch: where
  the batch is sharded and each device's part can be divided by `num`, each
  device takes its micro-batches out of its own part, and no data moves.

  The loss must be the mean, or the sum, of what each element of the batch adds
  to it. Loss and gradients are then those of `jax.value_and_grad` but for the
  order of one addition, and have the same dtypes, in which they are added. A
  loss that is normalized over the batch in another way (by a number of tokens
  that differs between elements, say) is a "sum" if divided afterwards.

  Every typed key (`jax.random.key`) that is not an element of the batch is
  folded with the micro-batch's index, so that micro-batches draw different
  numbers; they are not those of the whole batch. With num = 1 keys stay.

  Args:
    loss_fn: The loss of its arguments, a scalar, or (loss, aux).
    num: The number of micro-batches; with 1 this is `jax.value_and_grad`.
    argnums: The arguments to differentiate, as in `jax.value_and_grad`. The
      gradient of a batch argument comes back in the order of the batch.
    batch_argnums: The arguments to split: pytrees of arrays with one leading
      axis. Scalars and what is no array go to each micro-batch whole.
    batch_argnames: The same for arguments that are given by name.
    rng_argnums: The arguments whose leaves are keys of the old kind
      (`jax.random.PRNGKey`, uint32): folded as typed keys are.
    rng_argnames: The same for arguments that are given by name.
    has_aux: Whether loss_fn returns (loss, aux).
    aux: How the leaves of aux are put together: a pytree, or the beginning of
      one, of "batch" (in the order of the batch), "mean", "sum" and "last" (the
      last micro-batch's). None goes by the leaf's shape for the whole batch: if
      it has the batch's axis, "batch"; if it is the same, `reduction`.
    reduction: How the loss is made from the elements of the batch.
    allow_int: As in `jax.value_and_grad`.

  Returns:
    A function of loss_fn's arguments that returns what
    `jax.value_and_grad(loss_fn, argnums, has_aux)` returns.

  Raises:
    BatchError: an argument above has a value that it cannot have; or, when the
      function is called, the batch cannot be split into `num` or aux not be put
      together.
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
    whole = split.arguments(args, kwargs, batch_places, rng_places)
    parts = whole.parts(num)
    values, grads = zip(
      *(differentiate(*part, **named) for part, named in parts), strict=True
    )
    losses, auxes = zip(*values, strict=True)
    joined = tuple(
      join.join_grads(of_one, in_batch=whole.is_split(place))
      for place, of_one in zip(
        grad_places, zip(*grads, strict=True), strict=True
      )
    )
    grad = joined if isinstance(argnums, Sequence) else joined[0]
    loss = join.join("sum", losses)
    if not has_aux:
      return loss, grad
    rules = aux
    if rules is None:
      whole_aux = jax.eval_shape(lambda: loss_fn(*args, **kwargs)[1])
      rules = join.rules_by_shape(whole_aux, auxes[0], num, reduction)
    return (loss, join.join(rules, auxes)), grad

  return value_and_grad


def _check(num: int, reduction: str, aux: Any) -> None:
  if operator.index(num) < 1:
    raise errors.BatchError(
      f"The number of micro-batches is {num}: give 1 or more."
    )
  if reduction not in ("mean", "sum"):
    raise errors.BatchError(
      f"The reduction is {reduction!r}: give 'mean' or 'sum', whichever the"
      " loss is of its batch."
    )
  for rule in jax.tree.leaves(aux):
    if rule not in join.RULES:
      raise errors.BatchError(
        f"aux has {rule!r}: give {', '.join(map(repr, join.RULES))}."
      )


def _share_of_loss(
  loss_fn: Callable[..., Any], divisor: int, has_aux: bool
) -> Callable[..., Any]:
  """A micro-batch's share of the loss, and aux.

  Dividing the loss, instead of the gradients, keeps each gradient as large as
  the whole batch's, in which loss scales for float16 are chosen.
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


def _integers(places: int | Sequence[int]) -> tuple[int, ...]:
  if isinstance(places, Sequence):
    return tuple(operator.index(place) for place in places)
  return (operator.index(places),)


def _names(places: str | Sequence[str]) -> tuple[str, ...]:
  return (places,) if isinstance(places, str) else tuple(places)
