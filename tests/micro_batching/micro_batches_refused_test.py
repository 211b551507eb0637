# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What cannot be split in micro-batches is refused in a clear sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest

import lagom_xla
from micro_batch_model import batch_of
from micro_batch_model import loss_of
from micro_batch_model import params_of
from micro_batch_model import per_element


@pytest.mark.parametrize(
  ("kwargs", "message"),
  [
    ({"num": 0}, "is 0: give 1 or more"),
    ({"reduction": "max"}, "'max': give 'mean' or 'sum'"),
    ({"aux": ("mean", "median")}, "aux has 'median': give 'batch', 'mean'"),
  ],
)
def test_an_argument_that_cannot_be_is_refused_at_once(
  kwargs: dict[str, Any], message: str
) -> None:
  with pytest.raises(lagom_xla.LagomError, match=message):
    lagom_xla.micro_batches(loss_of, **kwargs)


def with_aux(aux_of: Callable[[Any], Any]) -> Callable[..., Any]:
  return lambda params, batch: (loss_of(params, batch), aux_of(batch["x"]))


@pytest.mark.parametrize(
  ("loss", "kwargs", "message"),
  [
    (loss_of, {"num": 5}, r"of 24 in argument 1\['label'\] .* into 5"),
    (loss_of, {"batch_argnums": 3}, "This call has no argument 3"),
    (loss_of, {"rng_argnames": "key"}, "This call has no argument 'key'"),
    (
      loss_of,
      {"batch_argnums": (0, 1)},
      r"8 elements in argument 0\['hidden'\].* and 24 in argument 1",
    ),
    (per_element, {}, r"The loss is a float32\[12\]: return one real number"),
    (lambda p, b: jnp.int32(1), {}, r"The loss is a int32\[\]"),
    (loss_of, {"has_aux": True}, r"must return \(loss, aux\)"),
    (
      with_aux(lambda x: {"n": jnp.int32(len(x))}),
      {"has_aux": True},
      r"aux\['n'\], a int32\[\] of each of 2 micro-batches",
    ),
    (
      with_aux(lambda x: x.T),
      {"has_aux": True},
      r"makes a float32\[8, 24\]: say so by micro_batches\(aux",
    ),
    (
      with_aux(lambda x: jnp.int32(len(x))),
      {"has_aux": True, "aux": "mean"},
      "a leaf of int32, which has no mean",
    ),
    (
      with_aux(lambda x: (x, x)),
      {"has_aux": True, "aux": ("batch",)},
      "aux does not begin as what the loss function returns",
    ),
  ],
)
def test_what_cannot_be_split_or_put_together_gets_one_clear_sentence(
  loss: Callable[..., Any], kwargs: dict[str, Any], message: str
) -> None:
  halves = lagom_xla.micro_batches(loss, **kwargs)
  with pytest.raises(lagom_xla.LagomError, match=message):
    halves(params_of(), batch_of())


def test_a_batch_without_arrays_is_refused() -> None:
  halves = lagom_xla.micro_batches(lambda params, batch: params * batch)
  with pytest.raises(lagom_xla.LagomError, match="no array to split"):
    halves(1.0, 2.0)
