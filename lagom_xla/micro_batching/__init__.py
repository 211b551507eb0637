# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Micro-batches of one batch, each differentiated on its own.

A step that has one batch has nothing to hide a collective behind: what comes
next needs it. In micro-batches the same step is several computations that do
not depend on each other, and one computes while another communicates. One line
of a step changes:

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

from lagom_xla.micro_batching.value_and_grad import (
  micro_batches as micro_batches,
)
