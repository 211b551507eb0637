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

from benchmarks.strands.wall_clock import train_step
from lagom_xla import cluster as cluster_lib
from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program import mlir
from lagom_xla.passes.program import rewrite
from lagom_xla.passes.program.form import Form
from lagom_xla.tuner import tuner
import rewritten

_AXIS = "x"
_NUM_LAYERS, _WIDTH, _HIDDEN, _ROWS, _CLASSES = 3, 16, 32, 32, 8
_PRODUCTS_PER_LAYER = 2
_Step = Callable[..., Any]

ROTATED = Form(strands="rotated")
PAIRED = Form(strands="paired")
P = jax.sharding.PartitionSpec


def _placed(value: Any, spec: Any, num_devices: int = 8) -> jax.Array:
  mesh = jax.sharding.Mesh(np.array(jax.devices()[:num_devices]), (_AXIS,))
  return jax.device_put(value, jax.sharding.NamedSharding(mesh, spec))


def _mesh() -> jax.sharding.Mesh:
  return jax.sharding.Mesh(np.array(jax.devices()), (_AXIS,))


def _constrained(value: jax.Array, *spec: str | None) -> jax.Array:
  sharding = jax.sharding.NamedSharding(_mesh(), P(*spec))
  return jax.lax.with_sharding_constraint(value, sharding)


def _fsdp(h: jax.Array, weights: Any) -> tuple[jax.Array, None]:
  up, down = (_constrained(w, None, None) for w in weights)
  return _constrained(h + jax.nn.relu(h @ up) @ down, _AXIS, None), None


def _tp(h: jax.Array, weights: Any) -> tuple[jax.Array, None]:
  """Tensor and sequence parallelism: rows are gathered, sums scattered."""
  up, down = weights
  hidden = _constrained(
    jax.nn.relu(_constrained(h, None, None) @ up), None, _AXIS
  )
  return _constrained(h + hidden @ down, _AXIS, None), None


def _explicit_tp(h: jax.Array, weights: Any) -> tuple[jax.Array, None]:
  """The same under shard_map."""
  up, down = weights
  rows = jax.lax.all_gather(h, _AXIS, axis=0, tiled=True)
  partial = jax.nn.relu(rows @ up) @ down
  return h + jax.lax.psum_scatter(
    partial, _AXIS, scatter_dimension=0, tiled=True
  ), None


_LAYER = {"fsdp": _fsdp, "tp": _tp, "shard_map": _explicit_tp}


def _specs(layout: str) -> dict[str, Any]:
  up = P(None, _AXIS) if layout == "fsdp" else P(None, None, _AXIS)
  return {"up": up, "down": P(None, _AXIS), "head": P()}


def _loss_of(
  layout: str, _params: Any, rows: jax.Array, *, unroll: bool, remat: bool
) -> jax.Array:
  """The loss of a micro-batch, a mean."""
  layer = jax.checkpoint(_LAYER[layout]) if remat else _LAYER[layout]
  h, weights = rows, (_params["up"], _params["down"])
  if unroll:
    for i in range(_NUM_LAYERS):
      h, _ = layer(h, (weights[0][i], weights[1][i]))
  else:
    h, _ = jax.lax.scan(layer, h, weights)
  loss = jnp.mean(jnp.square(h @ _params["head"]))
  return jax.lax.pmean(loss, _AXIS) if layout == "shard_map" else loss


def _accumulated(
  loss: Callable[..., jax.Array], _params: Any, _batches: jax.Array
) -> tuple[Any, jax.Array]:
  """Sums of gradients, and each micro-batch's loss."""

  def add(sums: Any, batch: jax.Array) -> tuple[Any, jax.Array]:
    value, gradients = jax.value_and_grad(loss)(_params, batch)
    return jax.tree.map(jnp.add, sums, gradients), value

  return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, _params), _batches)


def _step_of(
  layout: str, *, unroll: bool = False, remat: bool = False
) -> _Step:
  """A step of SGD, (parameters, micro-batches) -> (parameters, losses)."""
  loss = functools.partial(_loss_of, layout, unroll=unroll, remat=remat)

  def step(_params: Any, _batches: jax.Array) -> tuple[Any, jax.Array]:
    sums, losses = _accumulated(loss, _params, _batches)
    return jax.tree.map(lambda p, g: p - 0.1 * g, _params, sums), losses

  if layout != "shard_map":
    return step
  specs = _specs(layout)
  return jax.shard_map(
    step,
    mesh=_mesh(),
    in_specs=(specs, P(None, _AXIS)),
    out_specs=(specs, P()),
    check_vma=False,
  )


def _params(layout: str = "fsdp") -> dict[str, jax.Array]:
  """Parameters as a layout has them, the same each time."""
  random = np.random.default_rng(0)
  shapes = {
    "up": (_NUM_LAYERS, _WIDTH, _HIDDEN),
    "down": (_NUM_LAYERS, _HIDDEN, _WIDTH),
    "head": (_WIDTH, _CLASSES),
  }
  return {
    name: _placed(
      random.normal(scale=0.3, size=shape).astype(np.float32),
      _specs(layout)[name],
    )
    for name, shape in shapes.items()
  }


def _batches(num: int) -> jax.Array:
  """So many micro-batches, the same each time."""
  rows = np.random.default_rng(1).normal(size=(num, _ROWS, _WIDTH))
  return _placed(rows.astype(np.float32), P(None, _AXIS))


def _rewrite(
  form: Form, step: _Step, *args: Any
) -> tuple[ir.Module, form_lib.Outcome]:
  module: Any = jax.jit(step).lower(*args).compiler_ir("stablehlo")
  return rewrite.rewrite(module, form)


def _rotated(layout: str, **kwargs: bool) -> ir.Module:
  """A step of four micro-batches."""
  step = _step_of(layout, **kwargs)
  return _rewrite(ROTATED, step, _params(layout), _batches(4))[0]


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
    module, _ = _rewrite(PAIRED, _step_of("tp"), _params("tp"), _batches(num))
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
    module = _rotated(layout)  # It keeps the operations alive.
    first, rotated, last = _loops(module.operation)
    (shared,) = _loops(rotated)
    # A product has two gradients.
    forward = _PRODUCTS_PER_LAYER
    assert _products(first) == forward
    assert _products(last) == 2 * forward
    assert _products(shared) == 3 * forward

  def test_what_the_next_layer_gathers_is_gathered_a_trip_ahead(self):
    module = _rotated("shard_map", remat=True)
    _, rotated, _ = _loops(module.operation)
    (shared,) = _loops(rotated)
    loop = counted_loops.read(shared)
    assert isinstance(loop, counted_loops.CountedLoop)
    # The first layer's gather stands before the loop, the last layer behind it.
    assert loop.num_trips == _NUM_LAYERS - 1
    gathers = [
      op.operation
      for op in loop.body.operations
      if op.operation.name == "stablehlo.all_gather"
    ]
    returned = list(loop.body.operations)[-1].operation.operands
    assert any(op.results[0] == value for op in gathers for value in returned)

  def test_unrolled_layers_are_cut_where_forward_turns_to_backward(self):
    module = _rotated("tp", unroll=True)
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
    forward = _PRODUCTS_PER_LAYER * _NUM_LAYERS + 1
    assert before.count("stablehlo.dot_general") == forward

  def test_only_residuals_cross_where_layers_are_recomputed(self):
    args = _params(), _batches(4)
    step = _step_of("fsdp", remat=True)
    as_written: Any = jax.jit(step).lower(*args).compiler_ir("stablehlo")
    main, *_ = _loops(as_written.operation)
    module = _rotated("fsdp", remat=True)
    _, rotated, _ = _loops(module.operation)
    added = [ir.RankedTensorType(value.type).shape for value in rotated.results]
    for value in main.results:
      added.remove(ir.RankedTensorType(value.type).shape)
    # Residuals: what each layer took, and what the head did. It counts in the
    # carry in which it did before.
    rows = [_ROWS, _WIDTH]
    assert sorted(map(list, added)) == [[_NUM_LAYERS, *rows], rows]

  def test_what_an_outer_loop_repeats_is_rotated_within(self):
    inner = _step_of("fsdp", remat=True)

    def steps(params: Any, batches: jax.Array) -> Any:
      def one(params: Any, _: None) -> Any:
        return inner(params, batches)

      return jax.lax.scan(one, params, None, length=2)

    module, outcome = _rewrite(ROTATED, steps, _params(), _batches(3))
    assert outcome.actions
    (outer,) = _loops(module.operation)
    assert len(_loops(outer)) == 3


def test_a_rotated_step_waits_less_for_its_collectives(
  h100s: Sequence[jax.Device],
):
  cluster = cluster_lib.parse("1x8xh100")
  sizes = train_step.Sizes(tokens=8192, width=8192, hidden=28672)
  step, args = train_step.train_step(h100s, sizes)
  lowered = step.lower(*args)
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
    gradient = jax.grad(
      functools.partial(_loss_of, "fsdp", unroll=False, remat=False)
    )

    def step(params: Any, batches: jax.Array) -> Any:
      def update(params: Any, batch: jax.Array) -> Any:
        gradients = gradient(params, batch)
        return jax.tree.map(lambda p, g: p - g, params, gradients), None

      return jax.lax.scan(update, params, batches)

    assert "updates the parameters" in _why_not(step, _params(), _batches(3))

  def test_a_single_micro_batch(self):
    reason = _why_not(_step_of("fsdp"), _params(), _batches(1))
    assert "no more than 1 trip" in reason

  def test_an_unknown_number_of_micro_batches(self):
    gradient = jax.grad(
      functools.partial(_loss_of, "fsdp", unroll=True, remat=False)
    )

    def step(params: Any, batches: jax.Array, num: jax.Array) -> Any:
      def add(i: jax.Array, sums: Any) -> Any:
        return jax.tree.map(jnp.add, sums, gradient(params, batches[i]))

      return jax.lax.fori_loop(0, num, add, params)

    reason = _why_not(step, _params(), _batches(3), _placed(2, P()))
    assert "its condition" in reason

  def test_a_host_callback(self):
    def loss(params: Any, batch: jax.Array) -> jax.Array:
      value = _loss_of("fsdp", params, batch, unroll=True, remat=False)
      jax.debug.print("loss {}", value)
      return value

    step = functools.partial(_accumulated, loss)
    assert "callback" in _why_not(step, _params(), _batches(3))

  def test_a_step_that_no_other_device_shares(self):
    def loss(weights: jax.Array, rows: jax.Array) -> jax.Array:
      return jnp.mean(jnp.square(jnp.sin(rows @ weights) @ weights))

    step = functools.partial(_accumulated, loss)
    reason = _why_not(step, jnp.ones((4, 4)), jnp.ones((3, 8, 4)))
    assert "nothing in it communicates" in reason

  def test_a_step_without_a_loop(self):
    def step(params: Any, batches: jax.Array) -> jax.Array:
      return batches[0] @ params["head"]

    assert "no loop" in _why_not(step, _params(), _batches(1))


# Unrolled, recomputed, micro-batches, donated; strands_training_test.py has
# the other layouts.
_VARIANTS = ((False, True, 3, True), (True, False, 2, False))


class TestBits:
  @pytest.mark.parametrize("form", [ROTATED, PAIRED])
  @pytest.mark.parametrize(("unroll", "remat", "num", "donate"), _VARIANTS)
  def test_training_steps_keep_every_bit(
    self, form: Form, unroll: bool, remat: bool, num: int, donate: bool
  ):
    layout = "shard_map"
    step = jax.jit(
      _step_of(layout, unroll=unroll, remat=remat),
      donate_argnums=0 if donate else (),
    )
    batches = _batches(num)
    lowered = step.lower(_params(layout), batches)
    compiled, outcome = rewritten.compile_rewritten(lowered, form)
    assert outcome.actions
    results = []
    for executable in (lowered.compile(), compiled):
      params = _params(layout)
      losses = []
      for _ in range(3):
        before = params
        params, loss = executable(params, batches)
        losses.append(loss)
        assert before["up"].is_deleted() == donate
      results.append((params, losses))
    jax.tree.map(np.testing.assert_array_equal, *results)

  def test_dropout_draws_what_it_drew(self):
    def step(params: Any, batches: jax.Array) -> Any:
      def add(carry: Any, batch: jax.Array) -> Any:
        key, sums, count = carry
        key, now = jax.random.split(key)

        def loss(params: Any) -> jax.Array:
          kept = jax.random.bernoulli(now, 0.5, batch.shape)
          rows = jnp.where(kept, batch, 0)
          return _loss_of("fsdp", params, rows, unroll=False, remat=True)

        sums = jax.tree.map(jnp.add, sums, jax.grad(loss)(params))
        return (key, sums, count + 1), None

      zeros = jax.tree.map(jnp.zeros_like, params)
      carry = (jax.random.PRNGKey(0), zeros, 0)
      return jax.lax.scan(add, carry, batches)[0]

    outcome = rewritten.assert_same_bits(step, ROTATED, _params(), _batches(3))
    assert outcome.actions

  def test_a_sum_over_gradients_differs_by_its_order_at_most(self):
    """XLA may fuse the sum with the last layer's part, which stands alone."""
    loss = functools.partial(_loss_of, "fsdp", unroll=False, remat=False)

    def step(params: Any, batches: jax.Array) -> Any:
      def add(norms: jax.Array, batch: jax.Array) -> Any:
        gradients = jax.grad(loss)(params, batch)
        return norms + optax.tree.norm(gradients), None

      return jax.lax.scan(add, jnp.zeros(()), batches)[0]

    args = _params(), _batches(3)
    lowered = jax.jit(step).lower(*args)
    compiled, outcome = rewritten.compile_rewritten(lowered, ROTATED)
    assert outcome.actions
    # Four times the rounding of a float32.
    np.testing.assert_allclose(
      compiled(*args), lowered.compile()(*args), rtol=4 * 2**-23
    )

  def test_a_fori_loop_is_a_loop(self):
    gradient = jax.grad(
      functools.partial(_loss_of, "fsdp", unroll=False, remat=True)
    )

    def step(params: Any, batches: jax.Array) -> Any:
      def add(i: jax.Array, sums: Any) -> Any:
        return jax.tree.map(jnp.add, sums, gradient(params, batches[i]))

      zeros = jax.tree.map(jnp.zeros_like, params)
      return jax.lax.fori_loop(0, 4, add, zeros)

    outcome = rewritten.assert_same_bits(step, ROTATED, _params(), _batches(4))
    assert outcome.actions

  def test_flax_and_optax_accumulate_as_before(self):
    model = nn.Sequential([nn.Dense(_HIDDEN), nn.relu, nn.Dense(_CLASSES)])
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
    params = jax.tree.map(lambda p: _placed(p, P()), params)
    outcome = rewritten.assert_same_bits(step, ROTATED, params, _batches(3))
    assert outcome.actions

  @hypothesis.settings(max_examples=7)
  @hypothesis.given(data=st.data())
  def test_any_loop_that_accumulates_keeps_its_bits(self, data: st.DataObject):
    num_trips = data.draw(st.integers(2, 4), label="trips")
    num_layers = data.draw(st.integers(1, 3), label="layers")
    in_loop = data.draw(st.booleans(), label="layers in a loop")
    remat = data.draw(st.booleans(), label="remat")
    keyed = data.draw(st.booleans(), label="a key of its own")
    stacked = data.draw(st.booleans(), label="stacks losses")
    delayed = data.draw(st.booleans(), label="carries the last loss")
    reverse = data.draw(st.booleans(), label="backwards")
    form = data.draw(st.sampled_from([ROTATED, PAIRED]), label="form")

    def layer(h: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
      return jnp.sin(h @ w), None

    if remat:
      layer = jax.checkpoint(layer)

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

    random = np.random.default_rng(num_layers)
    shape = (num_layers, _WIDTH, _WIDTH)
    weights = random.normal(scale=0.3, size=shape).astype(np.float32)
    rows = random.normal(size=(num_trips, 8, _WIDTH)).astype(np.float32)
    outcome = rewritten.assert_same_bits(
      step, form, _placed(weights, P(), 2), _placed(rows, P(None, _AXIS), 2)
    )
    assert outcome.actions
