# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Two micro-batches share loops, wait less, and compute the same bits.

Gradient accumulation is rotated or paired; loops side by side are merged; XLA
combines collectives only within strands. Other programs are left unchanged,
with a reason.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
import functools
import importlib
import re
from typing import Any, cast

from flax import linen as nn
import hypothesis
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxlib.mlir import ir
import numpy as np
import optax
import pytest

import accumulating_step
from benchmarks.workloads import perceptrons
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import compiler
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program import mlir
from lagom_xla.passes.program import rewrite
from lagom_xla.passes.program.form import Form
from lagom_xla.tuner import tuner
import rewritten
import strands_step

_NUM_LAYERS, _WIDTH, _ROWS = 3, 16, 32
# Each product has two gradients.
_PRODUCTS_PER_LAYER = 2
_Function = Callable[..., Any]

ROTATED = Form(strands="rotated")
PAIRED = Form(strands="paired")
MERGED = Form(strands="merged")
STAGGERED = Form(strands="staggered")
KEYED = Form(keyed=True)


def _stablehlo(lowered: jax.stages.Lowered) -> ir.Module:
  module: Any = lowered.compiler_ir("stablehlo")
  return module


def _module(function: _Function, *args: Any) -> ir.Module:
  return _stablehlo(jax.jit(function).lower(*args))


def _rewrite(
  form: Form, function: _Function, *args: Any
) -> tuple[ir.Module, form_lib.Outcome]:
  return rewrite.rewrite(_module(function, *args), form)


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
  """A step with explicit collectives and four micro-batches; its shapes."""
  step, args = perceptrons.two_hosts_step(devices, perceptrons.Sizes(**sizes))
  return step.lower(*args), args


def _layer(h: jax.Array, weight: jax.Array) -> tuple[jax.Array, None]:
  return jnp.sin(h @ weight), None


def _loss(weights: jax.Array, rows: jax.Array) -> jax.Array:
  rows, _ = jax.lax.scan(jax.checkpoint(_layer), rows, weights)
  return jnp.sum(jnp.square(rows))


def _unrolled_loss(weights: jax.Array, rows: jax.Array) -> jax.Array:
  """A loss without a loop over layers, so only that over batches may change."""
  for weight in weights:
    rows, _ = _layer(rows, weight)
  return jnp.sum(jnp.square(rows))


def _args(
  num: int, num_layers: int = _NUM_LAYERS, seed: int = 0
) -> tuple[jax.Array, jax.Array]:
  """Weights, and this many micro-batches on two devices."""
  random = np.random.default_rng(seed)
  mesh = Mesh(np.array(jax.devices()[:2]), ("x",))

  def placed(spec: P, scale: float, *shape: int) -> jax.Array:
    values = random.normal(scale=scale, size=shape).astype(np.float32)
    return jax.device_put(values, NamedSharding(mesh, spec))

  weights = placed(P(), 0.3, num_layers, _WIDTH, _WIDTH)
  return weights, placed(P(None, "x"), 1, num, _ROWS, _WIDTH)


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
  """The loops directly in the blocks of an operation, or in their wrappers."""
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
  def test_paired_micro_batches_share_both_loops_over_layers(self, num):
    module = _in_form(PAIRED, "tp_sp", num=num)
    paired, *alone = _loops(module.operation)
    loop = counted_loops.read(paired)
    assert isinstance(loop, counted_loops.CountedLoop)
    assert (loop.step, loop.num_trips) == (2, num // 2)
    shared = _loops(paired)
    forward = _PRODUCTS_PER_LAYER
    assert [_products(loop) for loop in shared] == [2 * forward, 4 * forward]
    # With an odd number, the last micro-batch has its own two loops.
    assert len(alone) == (2 if num % 2 else 0)

  @pytest.mark.parametrize("layout", ["fsdp", "tp_sp", "ep"])
  def test_a_rotated_steps_backward_and_next_forward_pass_share_a_loop(
    self, layout
  ):
    module = _in_form(ROTATED, layout)
    first, rotated, last = _loops(module.operation)
    (shared,) = _loops(rotated)
    forward = _PRODUCTS_PER_LAYER
    assert _products(first) == forward
    assert _products(last) == 2 * forward
    assert _products(shared) == 3 * forward

  def test_the_next_layers_weights_are_gathered_one_trip_ahead(self):
    sizes = {"tokens": 32, "width": 16, "hidden": 32, "num_layers": 3}
    lowered, _ = _explicit(jax.devices(), **sizes)
    module, _ = rewrite.rewrite(_stablehlo(lowered), ROTATED)
    _, rotated, _ = _loops(module.operation)
    (shared,) = _loops(rotated)
    loop = counted_loops.read(shared)
    assert isinstance(loop, counted_loops.CountedLoop)
    # The first layer's gather is before the loop, the last layer after it.
    assert loop.num_trips == 3 - 1
    gathers = [
      op.operation.results[0]
      for op in loop.body.operations
      if op.operation.name == "stablehlo.all_gather"
    ]
    assert any(value in gathers for value in mlir.returned(loop.body))

  def test_unrolled_layers_are_rotated_between_forward_and_backward(self):
    module = _in_form(ROTATED, "tp_sp", layers="unroll")
    (rotated,) = _loops(module.operation)
    function = mlir.functions_by_name(module.operation)["main"]
    operations = mlir.direct_operations(function)
    before = [op.name for op in operations[: operations.index(rotated)]]
    forward = _PRODUCTS_PER_LAYER * accumulating_step.NUM_LAYERS
    assert before.count("stablehlo.dot_general") == forward

  def test_only_residuals_are_carried_across_trips_with_remat(self):
    as_written = _in_form(Form(), "fsdp", remat=True)
    main, *_ = _loops(as_written.operation)
    module = _in_form(ROTATED, "fsdp", remat=True)
    _, rotated, _ = _loops(module.operation)
    added = [mlir.shape_of(value) or () for value in rotated.results]
    for value in main.results:
      added.remove(mlir.shape_of(value) or ())
    # Residuals are the inputs of each layer and of the loss. The micro-batch
    # counter stays in its carry.
    rows = (
      accumulating_step.NUM_SEQUENCES,
      accumulating_step.SEQ_LEN,
      accumulating_step.WIDTH,
    )
    assert sorted(added) == sorted(
      [(accumulating_step.NUM_LAYERS, *rows), rows]
    )

  def test_accumulation_within_an_outer_loop_is_rotated(self):
    def steps(weights: jax.Array, batches: jax.Array) -> Any:
      def one(weights: jax.Array, _: None) -> Any:
        return weights - _accumulated(_loss, weights, batches), None

      return jax.lax.scan(one, weights, None, length=2)

    module, outcome = _rewrite(ROTATED, steps, *_args(3))
    assert outcome.actions
    (outer,) = _loops(module.operation)
    assert len(_loops(outer)) == 3


def test_a_rotated_step_has_less_exposed_communication(h100s):
  cluster = cluster_lib.parse("1x8xh100")
  lowered, _ = _explicit(h100s, tokens=8192, width=8192, hidden=28672)
  rotated, outcome = rewritten.lower_rewritten(lowered, ROTATED)
  assert outcome.actions
  before, after = (
    tuner.inspect(program, cluster=cluster) for program in (lowered, rotated)
  )
  before, after = (s.timeline(s.default) for s in (before, after))
  # Two of the eight passes overlap no other; in the others, one gather per
  # layer has nothing to hide behind.
  assert after.total_exposed_us < 0.7 * before.total_exposed_us
  assert after.step_time_us < before.step_time_us


def _refused(form: Form, function: _Function, *args: Any) -> str:
  """Why a program was not changed."""
  module = _module(function, *args)
  text = str(module)
  same, outcome = rewrite.rewrite(module, form)
  assert same is module and str(module) == text
  assert not outcome.actions
  return " ".join(refusal.reason for refusal in outcome.refusals)


def _updating(weights: jax.Array, batches: jax.Array) -> Any:
  def update(weights: jax.Array, batch: jax.Array) -> Any:
    return weights - jax.grad(_unrolled_loss)(weights, batch), None

  return jax.lax.scan(update, weights, batches)


def _uncounted(weights: jax.Array, batches: jax.Array) -> Any:
  def add(i: jax.Array, sums: jax.Array) -> jax.Array:
    return sums + jax.grad(_unrolled_loss)(weights, batches[i])

  return jax.lax.fori_loop(0, batches[0, 0, 0].astype(int), add, weights)


def _telling_loss(weights: jax.Array, batch: jax.Array) -> jax.Array:
  value = _unrolled_loss(weights, batch)
  jax.debug.print("loss {}", value)
  return value


_accumulating = functools.partial(_accumulated, _unrolled_loss)


@pytest.mark.parametrize(
  ("step", "num", "reason"),
  [
    (_updating, 3, "updates the parameters"),
    (_accumulating, 1, "fewer than two trips"),
    (_uncounted, 3, "its condition"),
    (functools.partial(_accumulated, _telling_loss), 3, "callback"),
    (lambda weights, batches: batches[0] @ weights[0], 1, "none of its loops"),
  ],
)
@pytest.mark.parametrize("form", [ROTATED, PAIRED])
def test_a_step_that_cannot_be_rotated_or_paired_is_unchanged(
  form, step, num, reason
):
  assert reason in _refused(form, step, *_args(num))


@pytest.mark.parametrize("form", [ROTATED, PAIRED])
def test_a_step_without_communication_is_unchanged(form):
  alone = [np.asarray(value) for value in _args(3)]
  assert "nothing in it communicates" in _refused(form, _accumulating, *alone)


class TestBits:
  def test_a_rotated_flax_and_optax_step_computes_the_same_bits(self):
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
  def test_any_accumulating_loop_computes_the_same_bits_in_a_form(self, data):
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


_WEIGHTS, _PAIR = (
  jnp.asarray(np.random.default_rng(0).normal(size=size), jnp.float32)
  for size in ((3, 4, 4), (2, 8, 4))
)


def _forward(x: jax.Array, weights: jax.Array) -> jax.Array:
  return jax.lax.scan(_layer, x, weights)[0]


def _in_both(forward: _Function) -> _Function:
  """The sum of two loops' results for two micro-batches."""
  return lambda weights, rows: sum(forward(x, weights) for x in rows)


def _two_micro_batches(weights: jax.Array, rows: jax.Array) -> jax.Array:
  gradient = jax.grad(_loss)
  return gradient(weights, rows[0]) + gradient(weights, rows[1])


def _while_loops(module: ir.Module) -> list[ir.Operation]:
  return [
    inner
    for inner in mlir.inner_operations(module.operation)
    if inner.name == "stablehlo.while"
  ]


def _num_loops(function: _Function, form: Form, *args: Any) -> int:
  return len(_while_loops(_rewrite(form, function, *args)[0]))


class TestPairs:
  @pytest.mark.parametrize(("form", "num"), [(MERGED, 2), (STAGGERED, 3)])
  def test_passes_of_two_micro_batches_share_loops(self, form, num):
    args = (_WEIGHTS, _PAIR)
    assert len(_while_loops(_module(_two_micro_batches, *args))) == 4
    assert _num_loops(_two_micro_batches, form, *args) == num
    assert rewritten.assert_same_bits(_two_micro_batches, form, *args).actions

  def test_loops_within_an_outer_loop_are_merged(self):
    def step(weights: jax.Array, rows: jax.Array) -> jax.Array:
      def twice(total: jax.Array, _: None) -> tuple[jax.Array, None]:
        return total + _two_micro_batches(weights + total, rows), None

      return jax.lax.scan(twice, jnp.zeros_like(weights), None, length=3)[0]

    rewritten.assert_same_bits(step, MERGED, _WEIGHTS, _PAIR)
    assert _num_loops(step, MERGED, _WEIGHTS, _PAIR) == 3

  def test_a_merged_loop_carries_common_read_only_values_once(self):
    both = _in_both(_forward)
    before = _while_loops(_module(both, _WEIGHTS, _PAIR))
    module, _ = _rewrite(MERGED, both, _WEIGHTS, _PAIR)
    (merged,) = _while_loops(module)
    # Each loop carries its rows, the weights and a counter.
    assert [len(loop.operands) for loop in before] == [3, 3]
    assert len(merged.operands) == 4

  def test_a_loop_in_a_function_called_twice_is_merged(self):
    both = _in_both(jax.jit(_forward))
    rewritten.assert_same_bits(both, MERGED, _WEIGHTS, _PAIR)
    assert _num_loops(both, MERGED, _WEIGHTS, _PAIR) == 1


def _chained(weights: jax.Array, rows: jax.Array) -> jax.Array:
  return _forward(_forward(rows[0], weights), weights)


def _unequal(weights: jax.Array, rows: jax.Array) -> jax.Array:
  return _forward(rows[0], weights) + _forward(rows[1], weights[:2])


def _until(x: jax.Array, weights: jax.Array) -> jax.Array:
  return jax.lax.while_loop(
    lambda x: jnp.sum(x) < 9, lambda x: jnp.abs(x @ weights[0]) + 1, x
  )


def _told(x: jax.Array, weights: jax.Array, *, ordered: bool) -> jax.Array:
  """A loop with callbacks, ordered by a token if `ordered`."""

  def told(x: jax.Array, weight: jax.Array) -> tuple[jax.Array, None]:
    jax.debug.callback(lambda _: None, x[0, 0], ordered=ordered)
    return _layer(x, weight)

  return jax.lax.scan(told, x, weights)[0]


def _without_products(x: jax.Array, weights: jax.Array) -> jax.Array:
  return jax.lax.scan(lambda x, weight: (x + weight[0], None), x, weights)[0]


@pytest.mark.parametrize(
  ("function", "reason"),
  [
    (_chained, "needs what the other"),
    (_unequal, "they make 3 and 2 trips"),
    (_in_both(_until), "a counter with a constant"),
    (_in_both(functools.partial(_told, ordered=False)), "host callback"),
    (
      _in_both(functools.partial(_told, ordered=True)),
      "one needs what|host callback",
    ),
    (_in_both(_without_products), "it has no loop with matmuls"),
    (lambda weights, rows: _forward(rows[0], weights), "no other loop"),
  ],
)
def test_loops_that_cannot_be_merged_are_unchanged_with_a_reason(
  function, reason
):
  assert re.search(reason, _refused(MERGED, function, _WEIGHTS, _PAIR))


@pytest.mark.parametrize(
  ("start", "limit", "step"), [(0, 7, 1), (-3, 4, 2), (5, 5, 1), (6, 5, 3)]
)
def test_a_counted_loops_trip_count_is_right(start, limit, step):
  def count() -> jax.Array:
    return jax.lax.while_loop(
      lambda i: i < limit, lambda i: i + step, jnp.int32(start)
    )

  (loop,) = _while_loops(_module(count))
  read = counted_loops.read(loop)
  assert isinstance(read, counted_loops.CountedLoop)
  assert int(jax.jit(count)()) == start + read.num_trips * step


def test_loops_reordered_by_an_earlier_merge_can_still_be_merged():
  """The last one needs the third, which so comes to stand before the second."""

  def large(x: jax.Array, weight: jax.Array) -> tuple[jax.Array, None]:
    return jnp.tanh(x @ weight @ weight), None

  def program(weights: jax.Array, rows: jax.Array) -> Any:
    first, _ = jax.lax.scan(large, rows[0], weights)
    second, _ = jax.lax.scan(_layer, rows[1], weights)
    third, _ = jax.lax.scan(_layer, rows[0] + 1, weights)
    last, _ = jax.lax.scan(large, third / 2, weights)
    return first, second, last

  outcome = rewritten.assert_same_bits(program, MERGED, _WEIGHTS, _PAIR)
  assert len(outcome.actions) == 2


_Body = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


def _with_captured(x: jax.Array, weight: jax.Array) -> Any:
  captured = jnp.arange(4, dtype=jnp.float32)
  return jnp.tanh(x @ weight + captured), jnp.sum(x)


def _with_condition(x: jax.Array, weight: jax.Array) -> Any:
  product = x @ weight
  return jax.lax.cond(
    jnp.sum(x) > 0, lambda y: jnp.sin(y), lambda y: y * 0.5, product
  ), x[0, 0]


def _with_loop(x: jax.Array, weight: jax.Array) -> Any:
  def inner(_: int, y: jax.Array) -> jax.Array:
    return jnp.tanh(y @ weight)

  return jax.lax.fori_loop(0, 2, inner, x), jnp.max(x)


@jax.jit
def _with_call(x: jax.Array, weight: jax.Array) -> Any:
  return jax.nn.relu(x) @ weight, x[1, 1]


_BODIES: Sequence[_Body] = (
  _with_captured,
  _with_condition,
  _with_loop,
  _with_call,
)


@st.composite
def _programs(draw: st.DrawFn) -> _Function:
  """Loops of several bodies and lengths, each fed by an earlier value."""
  loops = draw(
    st.lists(
      st.tuples(
        st.sampled_from(_BODIES),
        st.integers(2, 3),  # Trips.
        st.integers(0, 10),  # Which value before it is carried.
        st.booleans(),  # Whether the last trip comes first.
        st.booleans(),  # Whether another value is added in each trip.
      ),
      min_size=2,
      max_size=4,
    )
  )

  def program(weights: jax.Array, rows: jax.Array) -> Any:
    values = [rows[0], rows[1]]
    for body, num_trips, fed_by, reverse, adds in loops:
      x = values[fed_by % len(values)]
      added = values[(fed_by + 1) % len(values)] if adds else 0.0

      def trip(x: jax.Array, w: jax.Array, body: _Body, added: Any) -> Any:
        return body(x + added, w)

      last, outputs = jax.lax.scan(
        functools.partial(trip, body=body, added=added),
        x,
        weights[:num_trips],
        reverse=reverse,
      )
      # Operations between loops, which may have to move.
      values.append(last + jnp.sum(outputs) / 7)
    return values

  return program


@hypothesis.given(
  program=_programs(), form=st.sampled_from([MERGED, STAGGERED])
)
@hypothesis.settings(max_examples=6)
def test_random_programs_of_loops_compute_the_same_bits_when_merged(
  program, form
):
  rewritten.assert_same_bits(program, form, _WEIGHTS, _PAIR)


_WIDE, _HIDDEN, _NUM_ROWS = 64, 128, 256

_Layer = Callable[[jax.Array, Any], jax.Array]


def _tp_layer(x: jax.Array, weights: Any) -> jax.Array:
  """Rows sharded (sequence parallel) around a pair of sharded products."""
  rows = jax.lax.all_gather(jnp.tanh(x), "x", axis=0, tiled=True)
  partial = jax.nn.relu(rows @ weights["up"]) @ weights["down"]
  return x + jax.lax.psum_scatter(partial, "x", scatter_dimension=0, tiled=True)


def _fsdp_layer(x: jax.Array, weights: Any) -> jax.Array:
  """Weights sharded, and gathered for use."""
  gather = functools.partial(
    jax.lax.all_gather, axis_name="x", axis=0, tiled=True
  )
  return x + jax.nn.relu(x @ gather(weights["up"])) @ gather(weights["down"])


def _lower(
  devices: Sequence[jax.Device],
  *,
  layer: _Layer = _tp_layer,
  num_micro_batches: int = 2,
  scan: bool = True,
  remat: bool = True,
) -> jax.stages.Lowered:
  """A step of gradient descent, one micro-batch written after the other."""
  is_tp = layer is _tp_layer
  mesh = Mesh(np.array(devices), ("x",))
  specs = {
    "up": P(None, None, "x") if is_tp else P(None, "x", None),
    "down": P(None, "x", None),
  }
  rows_spec = P(None, "x", None)

  def loss(weights: Any, x: jax.Array) -> jax.Array:
    each = jax.checkpoint(layer, prevent_cse=not scan) if remat else layer
    if scan:
      x, _ = jax.lax.scan(lambda x, w: (each(x, w), None), x, weights)
    else:
      for i in range(_NUM_LAYERS):
        x = each(x, jax.tree.map(lambda w, i=i: w[i], weights))
    return jnp.sum(jnp.square(x.astype(jnp.float32)))

  def step(weights: Any, rows: jax.Array) -> Any:
    each = [jax.grad(loss)(weights, rows[m]) for m in range(num_micro_batches)]
    sums = functools.reduce(lambda a, b: jax.tree.map(jnp.add, a, b), each)
    return jax.tree.map(lambda w, g: w - jnp.bfloat16(1e-3) * g, weights, sums)

  def shape(spec: P, *sizes: int) -> jax.ShapeDtypeStruct:
    sharding = NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(sizes, jnp.bfloat16, sharding=sharding)

  sharded = jax.shard_map(
    step, mesh=mesh, in_specs=(specs, rows_spec), out_specs=specs
  )
  return jax.jit(sharded).lower(
    {
      "up": shape(
        specs["up"],
        _NUM_LAYERS,
        _WIDE,
        _HIDDEN,
      ),
      "down": shape(
        specs["down"],
        _NUM_LAYERS,
        _HIDDEN,
        _WIDE,
      ),
    },
    shape(rows_spec, num_micro_batches, _NUM_ROWS, _WIDE),
  )


Lower = Callable[..., jax.stages.Lowered]


def _lower_in_form(
  lowered: jax.stages.Lowered, strands: Any = "none", *, keyed: bool = True
) -> tuple[jax.stages.Lowered, int]:
  """A step in a form, and the number of blocks with keys for strands."""
  form = Form(strands=strands, keyed=keyed)
  in_form, outcome = rewritten.lower_rewritten(lowered, form)
  assert outcome.actions
  return in_form, sum("stay apart" in action for action in outcome.actions)


def _num_run(module: hlo.Module) -> int:
  """The number of collectives that a step runs."""
  return sum(c.executions for c in collectives.find(module))


def _gathered_bytes(module: hlo.Module) -> int:
  return sum(
    c.result_bytes * c.executions
    for c in collectives.find(module)
    if c.kind == "all-gather"
  )


def _operations_of(module: ir.Module, name: str) -> list[ir.Operation]:
  inner = mlir.inner_operations(module.operation)
  return [operation for operation in inner if operation.name == name]


def _keys_of(module: ir.Module, name: str) -> collections.Counter[str]:
  """The number of operations with a name, by key.

  Gathers of the next trip belong to no strand, and have no key.
  """
  found: collections.Counter[str] = collections.Counter()
  for operation in _operations_of(module, name):
    if mlir.frontend_attribute(operation, "combiner_key"):
      attributes = ir.DictAttr(operation.attributes["mhlo.frontend_attributes"])
      found[ir.StringAttr(attributes["combiner_key"]).value] += 1
  return found


@pytest.fixture(scope="module")
def lower_h100(h100s) -> Lower:
  return functools.partial(_lower, h100s)


@pytest.mark.parametrize(
  ("strands", "num_keyed"), [("merged", 2), ("staggered", 1)]
)
def test_only_keys_stop_xla_from_combining_across_strands_in_a_loop(
  lower_h100, scheduled, strands, num_keyed
):
  plain = lower_h100()
  coupled, _ = _lower_in_form(plain, strands, keyed=False)
  apart, num = _lower_in_form(plain, strands)
  assert num == num_keyed
  num_alone = _num_run(scheduled(plain))
  assert _num_run(scheduled(coupled)) < num_alone
  # More where the last trip, now outside the loop, is combined less.
  assert _num_run(scheduled(apart)) >= num_alone


@pytest.mark.parametrize("num_micro_batches", [2, 3])
def test_only_keys_stop_xla_from_combining_across_unrolled_strands(
  lower_h100, scheduled, num_micro_batches
):
  lower_ = functools.partial(lower_h100, scan=False)
  coupled = lower_(num_micro_batches=num_micro_batches)
  apart, num_keyed = _lower_in_form(coupled)
  assert num_keyed == 1
  num_of_one = _num_run(scheduled(lower_(num_micro_batches=1)))
  assert _num_run(scheduled(coupled)) < num_micro_batches * num_of_one
  assert _num_run(scheduled(apart)) == num_micro_batches * num_of_one


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("layer", [_tp_layer, _fsdp_layer])
def test_layers_of_one_micro_batch_get_no_strand_keys(lower_h100, layer, scan):
  lowered = lower_h100(num_micro_batches=1, layer=layer, scan=scan)
  module = _stablehlo(lowered)
  same, outcome = rewrite.rewrite(module, KEYED)
  assert same is module and not outcome.actions


@pytest.mark.parametrize("remat", [False, True])
@pytest.mark.parametrize("keyed", [False, True])
def test_merged_strands_gather_their_common_weights_once(
  lower_h100, scheduled, remat, keyed
):
  plain = lower_h100(layer=_fsdp_layer, remat=remat)
  merged, _ = _lower_in_form(plain, "merged", keyed=keyed)
  num_bytes = _gathered_bytes(scheduled(plain))
  assert 2 * _gathered_bytes(scheduled(merged)) == num_bytes


def test_collectives_on_a_strands_saved_values_get_that_strands_key(h100s):
  mesh = Mesh(np.array(h100s), ("x",))

  def strand(weights: Any, saved: jax.Array) -> jax.Array:
    def trip(total: jax.Array, per_layer: Any) -> tuple[jax.Array, None]:
      # The gathered and reduced arrays do not depend on the loop's carry.
      return total * _tp_layer(per_layer[0], per_layer[1]), None

    return jax.lax.scan(trip, saved[0], (saved, weights))[0]

  def step(weights: Any, saved: jax.Array) -> jax.Array:
    return strand(weights, saved[0]) + strand(weights, saved[1])

  rows = P(None, None, "x", None)
  specs = {"up": P(None, None, "x"), "down": P(None, "x", None)}
  sharded = jax.shard_map(
    step, mesh=mesh, in_specs=(specs, rows), out_specs=P("x", None)
  )
  lowered = jax.jit(sharded).lower(
    {
      "up": jnp.zeros((_NUM_LAYERS, _WIDE, _HIDDEN)),
      "down": jnp.zeros((_NUM_LAYERS, _HIDDEN, _WIDE)),
    },
    jnp.zeros((2, _NUM_LAYERS, _NUM_ROWS, _WIDE)),
  )
  keyed, _ = _lower_in_form(lowered, "merged")
  for name in ("stablehlo.all_gather", "stablehlo.reduce_scatter"):
    assert _keys_of(_stablehlo(keyed), name) == {"strand 0": 1, "strand 1": 1}


def test_an_existing_combiner_key_is_kept(lower_h100):
  lowered = lower_h100(scan=False)
  module = _stablehlo(lowered)
  with module.context, ir.Location.unknown():
    own = ir.Attribute.parse('{combiner_key = "own", other = "kept"}')
    for operation in _operations_of(module, "stablehlo.all_gather"):
      operation.attributes["mhlo.frontend_attributes"] = own
  keyed, _ = _lower_in_form(lowered)
  module = _stablehlo(keyed)
  assert set(_keys_of(module, "stablehlo.all_gather")) == {"own"}
  assert set(_keys_of(module, "stablehlo.reduce_scatter")) == {
    "strand 0",
    "strand 1",
  }


def test_xlas_partitioner_copies_keys_to_the_collectives_it_inserts(
  h100s,
):
  step, shapes = strands_step.lowerable(h100s)
  lowered, num_keyed = _lower_in_form(step.lower(*shapes), "merged")
  assert num_keyed == 2
  module = compiler.start_before_combining(
    lowered_lib.LoweredStep(lowered, cluster_lib.parse("1x8xh100"))
  ).result()
  found = collections.Counter(
    i.frontend_attributes.map.get("combiner_key", "")
    for c in module.computations.values()
    for i in c.instructions
    if i.opcode in ("all-reduce", "reduce-scatter")
  )
  assert found["strand 0"] == found["strand 1"] > 0
  assert set(found) <= {"", "strand 0", "strand 1"}


def test_keys_do_not_change_any_bit_of_the_results():
  step, shapes = strands_step.lowerable(jax.devices())
  results = []
  for keyed in (False, True):
    in_form, _ = _lower_in_form(step.lower(*shapes), "merged", keyed=keyed)
    results.append(in_form.compile()(*strands_step.values(shapes)))
  assert any(np.any(np.asarray(g)) for g in jax.tree.leaves(results))
  jax.tree.map(np.testing.assert_array_equal, *results)


def test_a_refusal_names_the_users_line_not_a_packages(tmp_path, monkeypatch):
  package = tmp_path / "site-packages"
  package.mkdir()
  (package / "scans_inside.py").write_text(
    "import jax\ndef scan(f, x, y):\n  return jax.lax.scan(f, x, y)\n"
  )
  monkeypatch.syspath_prepend(str(package))
  scans = importlib.import_module("scans_inside")

  def step(x: jax.Array, w: jax.Array) -> jax.Array:
    return scans.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0]

  module = _module(step, jnp.ones((8, 8)), jnp.ones((2, 8, 8)))
  _, outcome = rewrite.rewrite(module, MERGED)
  (refusal,) = outcome.refusals
  assert "strands_test.py:" in refusal.where
  assert "scans_inside" not in refusal.where
