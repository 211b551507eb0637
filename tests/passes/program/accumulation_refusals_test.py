# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Gradient accumulation that cannot be rotated is left, with the reason."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

import accumulating_step
from lagom_xla.passes.program import rewrite
from lagom_xla.passes.program.form import Form

ROTATED = Form(strands="rotated")
PAIRED = Form(strands="paired")
P = jax.sharding.PartitionSpec


def _why_not(step: accumulating_step.Step, *args: Any) -> str:
  """Why a step was left, in either form, as the module that it was."""
  module: Any = jax.jit(step).lower(*args).compiler_ir("stablehlo")
  text = str(module)
  reasons = []
  for form in (ROTATED, PAIRED):
    same, outcome = rewrite.rewrite(module, form)
    assert same is module and str(module) == text
    assert not outcome.actions
    reasons.append(" ".join(refusal.reason for refusal in outcome.refusals))
  rotated, paired = reasons
  assert rotated and paired
  return rotated if rotated == paired else f"{rotated} {paired}"


class TestRefusals:
  def test_parameters_that_each_micro_batch_updates(self):
    gradient = jax.grad(
      functools.partial(
        accumulating_step.loss_of, "fsdp", unroll=False, remat=False
      )
    )

    def step(params: Any, batches: jax.Array) -> Any:
      def update(params: Any, batch: jax.Array) -> Any:
        gradients = gradient(params, batch)
        return jax.tree.map(lambda p, g: p - g, params, gradients), None

      return jax.lax.scan(update, params, batches)

    assert "updates the parameters" in _why_not(
      step, accumulating_step.params(), accumulating_step.batches(3)
    )

  def test_a_single_micro_batch(self):
    reason = _why_not(
      accumulating_step.step_of("fsdp"),
      accumulating_step.params(),
      accumulating_step.batches(1),
    )
    assert "no more than 1 trip" in reason

  def test_an_unknown_number_of_micro_batches(self):
    gradient = jax.grad(
      functools.partial(
        accumulating_step.loss_of, "fsdp", unroll=True, remat=False
      )
    )

    def step(params: Any, batches: jax.Array, num: jax.Array) -> Any:
      def add(i: jax.Array, sums: Any) -> Any:
        return jax.tree.map(jnp.add, sums, gradient(params, batches[i]))

      return jax.lax.fori_loop(0, num, add, params)

    reason = _why_not(
      step,
      accumulating_step.params(),
      accumulating_step.batches(3),
      accumulating_step.placed(2, P()),
    )
    assert "its condition" in reason

  def test_a_host_callback(self):
    def loss(params: Any, batch: jax.Array) -> jax.Array:
      value = accumulating_step.loss_of(
        "fsdp", params, batch, unroll=True, remat=False
      )
      jax.debug.print("loss {}", value)
      return value

    step = functools.partial(accumulating_step.accumulated, loss)
    assert "callback" in _why_not(
      step, accumulating_step.params(), accumulating_step.batches(3)
    )

  def test_a_step_that_no_other_device_shares(self):
    def loss(weights: jax.Array, rows: jax.Array) -> jax.Array:
      return jnp.mean(jnp.square(jnp.sin(rows @ weights) @ weights))

    step = functools.partial(accumulating_step.accumulated, loss)
    reason = _why_not(step, jnp.ones((4, 4)), jnp.ones((3, 8, 4)))
    assert "nothing in it communicates" in reason

  def test_a_step_without_a_loop(self):
    def step(params: Any, batches: jax.Array) -> jax.Array:
      return batches[0] @ params["head"]

    assert "no loop" in _why_not(
      step, accumulating_step.params(), accumulating_step.batches(1)
    )
