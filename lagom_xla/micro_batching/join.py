# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Results of micro-batches, put together to those of their batch."""

from __future__ import annotations

from collections.abc import Sequence
import functools
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lagom_xla import errors

RULES = ("batch", "mean", "sum", "last")


def join(rules: Any, parts: Sequence[Any]) -> Any:
  """Puts trees of one structure together, leaf by leaf.

  Args:
    rules: A pytree of RULES, or the beginning of one.
    parts: What each micro-batch gave, in order.

  Raises:
    BatchError: `rules` is not the beginning of a part, or asks for the mean of
      what has none.
  """
  try:
    whole = jax.tree.broadcast(rules, parts[0])
  except ValueError as error:
    raise errors.BatchError(
      f"aux does not begin as what the loss function returns: {error}"
    ) from error
  return jax.tree.map(_join_leaf, whole, *parts)


def join_grads(parts: Sequence[Any], *, in_batch: bool) -> Any:
  """Adds gradients; those of the batch itself go back into its order."""

  def rule(leaf: Any) -> str:
    if in_batch and np.ndim(leaf):
      return "batch"
    # The gradient of an integer, of dtype float0, is nothing that adds up.
    return "last" if leaf.dtype == jax.dtypes.float0 else "sum"

  return join(jax.tree.map(rule, parts[0]), parts)


def rules_by_shape(whole: Any, part: Any, num: int, reduction: str) -> Any:
  """Chooses the rule of each leaf by what the whole batch makes of its shape.

  Args:
    whole: Aux of the whole batch, its leaves ShapeDtypeStructs.
    part: Aux of one micro-batch.
    num: The number of micro-batches.
    reduction: The rule of what is as large in a micro-batch.

  Raises:
    BatchError: a leaf is neither the batch's nor can it be reduced.
  """

  def rule(path: Any, of_whole: Any, of_part: Any) -> str:
    shape, dtype = np.shape(of_part), of_whole.dtype
    if of_whole.shape == shape and _reducible(dtype, reduction):
      return reduction
    if shape and of_whole.shape == (num * shape[0], *shape[1:]):
      return "batch"
    raise errors.BatchError(
      f"It is unclear how aux{jax.tree_util.keystr(path)}, a"
      f" {dtype}{list(shape)} of each of {num} micro-batches, makes a"
      f" {dtype}{list(of_whole.shape)}: say so by micro_batches(aux=...)."
    )

  return jax.tree_util.tree_map_with_path(rule, whole, part)


def _reducible(dtype: Any, reduction: str) -> bool:
  kind = jnp.inexact if reduction == "mean" else jnp.number
  return jnp.issubdtype(dtype, kind)


def _join_leaf(rule: str, *leaves: Any) -> Any:
  if rule == "last":
    return leaves[-1]
  if rule == "batch":
    return _in_order(leaves)
  if not _reducible(jnp.result_type(leaves[0]), rule):
    raise errors.BatchError(
      f"aux has a leaf of {jnp.result_type(leaves[0])}, which has no {rule}:"
      " choose another rule."
    )
  total = functools.reduce(operator.add, leaves)
  return total / len(leaves) if rule == "mean" else total


def _in_order(leaves: Sequence[Any]) -> Any:
  """The batch of which leaf j has the elements j, j + num, j + 2 num, …."""
  float0 = leaves[0].dtype == jax.dtypes.float0
  stacked = (np if float0 else jnp).stack(leaves, axis=1)
  return stacked.reshape(-1, *stacked.shape[2:])
