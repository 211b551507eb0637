# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Gradient accumulation is rotated or paired, or is refused.

It waits less, and computes the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import functools
from typing import Any, cast

from flax import linen as nn
import hypothesis
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
from jaxlib.mlir import ir
import numpy as np
import optax
import pytest

import accumulating_step
from benchmarks.workloads import two_hosts as train_step
from lagom_xla import cluster as cluster_lib
from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program import mlir
from lagom_xla.passes.program import rewrite
from lagom_xla.passes.program.form import Form
from lagom_xla.tuner import tuner
import rewritten

_AXIS = "x"
_NUM_LAYERS, _WIDTH, _ROWS = 3, 16, 32
# Each has two gradients.
_PRODUCTS_PER_LAYER = 2
_Step = Callable[..., Any]

ROTATED = Form(strands="rotated")
PAIRED = Form(strands="paired")
P = jax.sharding.PartitionSpec


def _rewrite(
  form: Form, step: _Step, *args: Any
) -> tuple[ir.Module, form_lib.Outcome]:
  module: Any = jax.jit(step).lower(*args).compiler_ir("stablehlo")
  return rewrite.rewrite(module, form)


def _in_form(
  form: Form,
  layout: accumulating_step.Layout,
  *,
  layers: accumulating_step.Layers = "scan",
  remat: bool = False,
  num: int = 4,
) -> ir.Module:
  """A train step in a form."""
  case = accumulating_step.Case(layout, layers, remat, num)
  training = accumulating_step.Training(case)
  return _rewrite(form, training.step, training.state(), training.batches[0])[0]


def _explicit(
  devices: Sequence[jax.Device], **sizes: int
) -> tuple[jax.stages.Lowered, Any]:
  """A step with written-out collectives, of four micro-batches; its shapes."""
  step, args = train_step.train_step(devices, train_step.Sizes(**sizes))
  return step.lower(*args), args


def _layer(h: jax.Array, weight: jax.Array) -> tuple[jax.Array, None]:
  return jnp.sin(h @ weight), None


def _loss(weights: jax.Array, rows: jax.Array) -> jax.Array:
  rows, _ = jax.lax.scan(jax.checkpoint(_layer), rows, weights)
  return jnp.sum(jnp.square(rows))


def _unrolled_loss(weights: jax.Array, rows: jax.Array) -> jax.Array:
  """No loop over layers could be changed in place of that over batches."""
  for weight in weights:
    rows, _ = _layer(rows, weight)
  return jnp.sum(jnp.square(rows))


def _args(
  num: int, num_layers: int = _NUM_LAYERS, seed: int = 0
) -> tuple[jax.Array, jax.Array]:
  """Weights, and so many micro-batches on two devices."""
  random = np.random.default_rng(seed)
  mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), (_AXIS,))

  def placed(spec: P, scale: float, *shape: int) -> jax.Array:
    values = random.normal(scale=scale, size=shape).astype(np.float32)
    return jax.device_put(values, jax.sharding.NamedSharding(mesh, spec))

  weights = placed(P(), 0.3, num_layers, _WIDTH, _WIDTH)
  return weights, placed(P(None, _AXIS), 1, num, _ROWS, _WIDTH)


def _accumulated(
  loss: Callable[..., jax.Array], weights: Any, batches: jax.Array
) -> Any:
  """Sums of gradients."""

  def add(sums: Any, batch: jax.Array) -> tuple[Any, None]:
    return jax.tree.map(jnp.add, sums, jax.grad(loss)(weights, batch)), None

  return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, weights), batches)[0]


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
  def test_paired_trips_share_both_loops_over_layers(self, num):
    module = _in_form(PAIRED, "tp_sp", num=num)
    paired, *alone = _loops(module.operation)
    loop = counted_loops.read(paired)
    assert isinstance(loop, counted_loops.CountedLoop)
    assert (loop.step, loop.num_trips) == (2, num // 2)
    shared = _loops(paired)
    forward = _PRODUCTS_PER_LAYER
    assert [_products(loop) for loop in shared] == [2 * forward, 4 * forward]
    # Of an odd number the last is alone, with its two loops.
    assert len(alone) == (2 if num % 2 else 0)

  @pytest.mark.parametrize("layout", ["fsdp", "tp_sp", "ep"])
  def test_a_backward_and_a_forward_pass_share_a_loop(self, layout):
    module = _in_form(ROTATED, layout)
    first, rotated, last = _loops(module.operation)
    (shared,) = _loops(rotated)
    forward = _PRODUCTS_PER_LAYER
    assert _products(first) == forward
    assert _products(last) == 2 * forward
    assert _products(shared) == 3 * forward

  def test_what_the_next_layer_gathers_is_gathered_a_trip_ahead(self):
    sizes = {"tokens": 32, "width": 16, "hidden": 32, "num_layers": 3}
    lowered, _ = _explicit(jax.devices(), **sizes)
    as_written: Any = lowered.compiler_ir("stablehlo")
    module, _ = rewrite.rewrite(as_written, ROTATED)
    _, rotated, _ = _loops(module.operation)
    (shared,) = _loops(rotated)
    loop = counted_loops.read(shared)
    assert isinstance(loop, counted_loops.CountedLoop)
    # The first layer's gather stands before the loop, the last layer behind it.
    assert loop.num_trips == 3 - 1
    gathers = [
      op.operation.results[0]
      for op in loop.body.operations
      if op.operation.name == "stablehlo.all_gather"
    ]
    assert any(value in gathers for value in mlir.returned(loop.body))

  def test_unrolled_layers_are_cut_where_forward_turns_to_backward(self):
    module = _in_form(ROTATED, "tp_sp", layers="unroll")
    (rotated,) = _loops(module.operation)
    function = mlir.functions_by_name(module.operation)["main"]
    operations = mlir.direct_operations(function)
    before = [op.name for op in operations[: operations.index(rotated)]]
    forward = _PRODUCTS_PER_LAYER * accumulating_step.NUM_LAYERS
    assert before.count("stablehlo.dot_general") == forward

  def test_only_residuals_cross_where_layers_are_recomputed(self):
    as_written = _in_form(Form(), "fsdp", remat=True)
    main, *_ = _loops(as_written.operation)
    module = _in_form(ROTATED, "fsdp", remat=True)
    _, rotated, _ = _loops(module.operation)
    added = [mlir.shape_of(value) or () for value in rotated.results]
    for value in main.results:
      added.remove(mlir.shape_of(value) or ())
    # Residuals: what each layer took, and what the loss did. It counts in the
    # carry in which it did before.
    rows = (
      accumulating_step.NUM_SEQUENCES,
      accumulating_step.SEQ_LEN,
      accumulating_step.WIDTH,
    )
    assert sorted(added) == sorted(
      [(accumulating_step.NUM_LAYERS, *rows), rows]
    )

  def test_what_an_outer_loop_repeats_is_rotated_within(self):
    def steps(weights: jax.Array, batches: jax.Array) -> Any:
      def one(weights: jax.Array, _: None) -> Any:
        return weights - _accumulated(_loss, weights, batches), None

      return jax.lax.scan(one, weights, None, length=2)

    module, outcome = _rewrite(ROTATED, steps, *_args(3))
    assert outcome.actions
    (outer,) = _loops(module.operation)
    assert len(_loops(outer)) == 3


def test_a_rotated_step_waits_less_for_its_collectives(h100s):
  cluster = cluster_lib.parse("1x8xh100")
  lowered, _ = _explicit(h100s, tokens=8192, width=8192, hidden=28672)
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


def _why_not(step: _Step, *args: Any) -> str:
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
    def step(weights: jax.Array, batches: jax.Array) -> Any:
      def update(weights: jax.Array, batch: jax.Array) -> Any:
        return weights - jax.grad(_unrolled_loss)(weights, batch), None

      return jax.lax.scan(update, weights, batches)

    assert "updates the parameters" in _why_not(step, *_args(3))

  def test_a_single_micro_batch(self):
    step = functools.partial(_accumulated, _unrolled_loss)
    assert "no more than 1 trip" in _why_not(step, *_args(1))

  def test_an_unknown_number_of_micro_batches(self):
    def step(weights: jax.Array, batches: jax.Array, num: jax.Array) -> Any:
      def add(i: jax.Array, sums: jax.Array) -> jax.Array:
        return sums + jax.grad(_unrolled_loss)(weights, batches[i])

      return jax.lax.fori_loop(0, num, add, weights)

    assert "its condition" in _why_not(step, *_args(3), 2)

  def test_a_host_callback(self):
    def loss(weights: jax.Array, batch: jax.Array) -> jax.Array:
      value = _unrolled_loss(weights, batch)
      jax.debug.print("loss {}", value)
      return value

    step = functools.partial(_accumulated, loss)
    assert "callback" in _why_not(step, *_args(3))

  def test_a_step_that_no_other_device_shares(self):
    step = functools.partial(_accumulated, _unrolled_loss)
    alone = [np.asarray(value) for value in _args(3)]
    assert "nothing in it communicates" in _why_not(step, *alone)

  def test_a_step_without_a_loop(self):
    def step(weights: jax.Array, batches: jax.Array) -> jax.Array:
      return batches[0] @ weights[0]

    assert "no loop" in _why_not(step, *_args(1))


class TestBits:
  def test_flax_and_optax_accumulate_as_before(self):
    model = nn.Sequential([nn.Dense(32), nn.relu, nn.Dense(8)])
    optimizer = optax.MultiSteps(optax.adam(0.1), every_k_schedule=3)

    def step(params: Any, batches: jax.Array) -> Any:
      def loss(params: Any, batch: jax.Array) -> jax.Array:
        return jnp.mean(jnp.square(cast(jax.Array, model.apply(params, batch))))

      def add(state: Any, batch: jax.Array) -> Any:
        gradients = jax.grad(loss)(params, batch)
        updates, state = optimizer.update(gradients, state, params)
        return state, updates

      return jax.lax.scan(add, optimizer.init(params), batches)

    params = model.init(jax.random.key(0), jnp.zeros((1, _WIDTH)))
    weights, batches = _args(3)
    params = jax.device_put(params, weights.sharding)
    assert rewritten.assert_same_bits(step, ROTATED, params, batches).actions

  @hypothesis.settings(max_examples=5)
  @hypothesis.given(data=st.data())
  def test_any_loop_that_accumulates_keeps_its_bits(self, data):
    num_trips = data.draw(st.integers(2, 4), label="trips")
    num_layers = data.draw(st.integers(1, 3), label="layers")
    in_loop = data.draw(st.booleans(), label="layers in a loop")
    remat = data.draw(st.booleans(), label="remat")
    keyed = data.draw(st.booleans(), label="a key of its own")
    stacked = data.draw(st.booleans(), label="stacks losses")
    delayed = data.draw(st.booleans(), label="carries the last loss")
    reverse = data.draw(st.booleans(), label="backwards")
    form = data.draw(st.sampled_from([ROTATED, PAIRED]), label="form")

    layer = jax.checkpoint(_layer) if remat else _layer

    def loss(weights: jax.Array, rows: jax.Array) -> jax.Array:
      if in_loop:
        rows = jax.lax.scan(layer, rows, weights)[0]
      else:
        for weight in weights:
          rows, _ = layer(rows, weight)
      return jnp.sum(jnp.square(rows @ weights[0]))

    def step(weights: jax.Array, batches: jax.Array) -> Any:
      def add(carry: Any, rows: jax.Array) -> Any:
        key, sums, last, seen = carry
        if keyed:
          # Numerical Recipes' generator; jax.random takes long to compile.
          key = key * jnp.uint32(1664525) + jnp.uint32(1013904223)
          rows = rows + key.astype(jnp.float32) / 2.0**32
        value, gradient = jax.value_and_grad(loss)(weights, rows)
        seen = seen + (last if delayed else jnp.max(rows))
        carry = key, sums + gradient, value, seen
        return carry, value if stacked else None

      start = jnp.uint32(1), jnp.zeros_like(weights), 0.0, 0.0
      return jax.lax.scan(add, start, batches, reverse=reverse)

    args = _args(num_trips, num_layers, seed=num_layers)
    assert rewritten.assert_same_bits(step, form, *args).actions
