# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Gradient accumulation is rotated or paired and waits less, or is refused."""

from __future__ import annotations

from collections.abc import Sequence
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxlib.mlir import ir
import numpy as np
import pytest

import accumulating_step
from lagom_xla import cluster as cluster_lib
from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program import mlir
from lagom_xla.passes.program import rewrite
from lagom_xla.passes.program.form import Form
from lagom_xla.tuner import tuner
import rewritten

_AXIS = accumulating_step.AXIS
_LAYERS = accumulating_step.NUM_LAYERS
_WIDTH = accumulating_step.WIDTH
_ROWS = accumulating_step.ROWS
_PRODUCTS_PER_LAYER = accumulating_step.PRODUCTS_PER_LAYER
ROTATED = Form(strands="rotated")
PAIRED = Form(strands="paired")
P = jax.sharding.PartitionSpec


def _rewrite(
  form: Form, step: accumulating_step.Step, *args: Any
) -> tuple[ir.Module, form_lib.Outcome]:
  module: Any = jax.jit(step).lower(*args).compiler_ir("stablehlo")
  return rewrite.rewrite(module, form)


def _rotate(
  step: accumulating_step.Step, *args: Any
) -> tuple[ir.Module, form_lib.Outcome]:
  return _rewrite(ROTATED, step, *args)


def _products(operation: ir.Operation) -> int:
  inner = mlir.inner_operations(operation)
  return sum(op.name == "stablehlo.dot_general" for op in inner)


def _loops(operation: ir.Operation) -> list[ir.Operation]:
  """The loops right in the blocks of an operation, or of what wraps them."""
  found = []
  for region in operation.regions:
    for block in region.blocks:
      for op in block.operations:
        if op.operation.name == "stablehlo.while":
          found.append(op.operation)
        else:
          found.extend(_loops(op.operation))
  return found


class TestStructure:
  @pytest.mark.parametrize("num", [2, 3])
  def test_paired_trips_share_both_loops_over_layers(self, num: int):
    module, _ = _rewrite(
      PAIRED,
      accumulating_step.step_of("tp"),
      accumulating_step.params("tp"),
      accumulating_step.batches(num),
    )
    paired, *alone = _loops(module.operation)
    loop = counted_loops.read(paired)
    assert isinstance(loop, counted_loops.CountedLoop)
    assert (loop.step, loop.num_trips) == (2, num // 2)
    shared = _loops(paired)
    forward = _PRODUCTS_PER_LAYER
    assert [_products(loop) for loop in shared] == [2 * forward, 4 * forward]
    # Of an odd number the last is alone, with its two loops.
    assert len(alone) == (2 if num % 2 else 0)

  @pytest.mark.parametrize("layout", ["fsdp", "tp", "shard_map"])
  def test_a_backward_and_a_forward_pass_share_a_loop(self, layout: str):
    module, _ = _rotate(
      accumulating_step.step_of(layout),
      accumulating_step.params(layout),
      accumulating_step.batches(4),
    )
    first, rotated, last = _loops(module.operation)
    (shared,) = _loops(rotated)
    # A product has two gradients.
    forward = _PRODUCTS_PER_LAYER
    assert _products(first) == forward
    assert _products(last) == 2 * forward
    assert _products(shared) == 3 * forward

  def test_what_the_next_layer_gathers_is_gathered_a_trip_ahead(self):
    step = accumulating_step.step_of("shard_map", remat=True)
    module, _ = _rotate(
      step, accumulating_step.params("shard_map"), accumulating_step.batches(4)
    )
    _, rotated, _ = _loops(module.operation)
    (shared,) = _loops(rotated)
    loop = counted_loops.read(shared)
    assert isinstance(loop, counted_loops.CountedLoop)
    # The first layer's gather stands before the loop, the last layer behind it.
    assert loop.num_trips == _LAYERS - 1
    gathers = [
      op.operation
      for op in loop.body.operations
      if op.operation.name == "stablehlo.all_gather"
    ]
    returned = list(loop.body.operations)[-1].operation.operands
    assert any(op.results[0] == value for op in gathers for value in returned)

  def test_unrolled_layers_are_cut_where_forward_turns_to_backward(self):
    module, _ = _rotate(
      accumulating_step.step_of("tp", unroll=True),
      accumulating_step.params("tp"),
      accumulating_step.batches(4),
    )
    (rotated,) = _loops(module.operation)
    (function,) = [
      op.operation
      for op in module.body.operations
      if op.operation.name == "func.func"
    ]
    operations = [op.operation for op in function.regions[0].blocks[0]]
    at = operations.index(rotated)
    before = [op.name for op in operations[:at]]
    # The head's product comes after the layers'.
    forward = _PRODUCTS_PER_LAYER * _LAYERS + 1
    assert before.count("stablehlo.dot_general") == forward

  def test_only_residuals_cross_where_layers_are_recomputed(self):
    step = accumulating_step.step_of("fsdp", remat=True)
    module, _ = _rotate(
      step, accumulating_step.params(), accumulating_step.batches(4)
    )
    as_written: Any = (
      jax.jit(step)
      .lower(accumulating_step.params(), accumulating_step.batches(4))
      .compiler_ir("stablehlo")
    )
    main, rotated = (
      _loops(m.operation)[i].results
      for m, i in ((rewrite.rewrite(as_written, Form(strands="merged"))[0], 0),
                   (module, 1))
    )  # fmt: skip
    added = [ir.RankedTensorType(value.type).shape for value in rotated]
    for value in main:
      added.remove(ir.RankedTensorType(value.type).shape)
    # Residuals: what each layer took, and what the head did. It counts in the
    # carry in which it did before.
    rows = [_ROWS, _WIDTH]
    assert sorted(map(list, added)) == [[_LAYERS, *rows], rows]

  def test_what_an_outer_loop_repeats_is_rotated_within(self):
    inner = accumulating_step.step_of("fsdp", remat=True)

    def steps(params: Any, batches: jax.Array) -> Any:
      def one(params: Any, _: None) -> Any:
        return inner(params, batches)

      return jax.lax.scan(one, params, None, length=2)

    module, outcome = _rotate(
      steps, accumulating_step.params(), accumulating_step.batches(3)
    )
    assert outcome.actions
    (outer,) = _loops(module.operation)
    assert len(_loops(outer)) == 3


def test_a_rotated_step_waits_less_for_its_collectives(
  h100s: Sequence[jax.Device],
):
  cluster = cluster_lib.parse("1x8xh100")
  width, hidden, rows, num_layers, num_batches = 8192, 28672, 8192, 4, 4
  mesh = jax.sharding.Mesh(np.array(h100s), (_AXIS,))
  up, down, batch = P(None, None, _AXIS), P(None, _AXIS), P(None, _AXIS)

  def loss(params: Any, h: jax.Array) -> jax.Array:
    layer = jax.checkpoint(accumulating_step.explicit_tp)
    h, _ = jax.lax.scan(layer, h, (params["up"], params["down"]))
    return jax.lax.pmean(jnp.mean(jnp.square(h.astype(jnp.float32))), _AXIS)

  specs = {"up": up, "down": down}
  step = jax.shard_map(
    functools.partial(accumulating_step.accumulated, loss),
    mesh=mesh,
    in_specs=(specs, batch),
    out_specs=(specs, P()),
    check_vma=False,
  )

  def shape(spec: Any, *sizes: int) -> jax.ShapeDtypeStruct:
    sharding = jax.sharding.NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(sizes, jnp.bfloat16, sharding=sharding)

  lowered = jax.jit(step).lower(
    {
      "up": shape(up, num_layers, width, hidden),
      "down": shape(down, num_layers, hidden, width),
    },
    shape(batch, num_batches, rows, width),
  )
  rotated, outcome = rewritten.lower_rewritten(lowered, ROTATED)
  assert outcome.actions
  before, after = (
    tuner.inspect(program, cluster=cluster) for program in (lowered, rotated)
  )
  before, after = (s.timeline(s.default) for s in (before, after))
  # Two of the eight passes stay alone; of the others, a gather per layer is
  # the one that nothing is there to hide.
  assert after.total_exposed_us < 0.7 * before.total_exposed_us
  assert after.step_time_us < before.step_time_us


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
