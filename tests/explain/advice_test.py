# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Advice for programs that leave their shardings to XLA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import itertools
import pathlib
import re
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.explain import advice as advice_lib
from lagom_xla.explain import explaining
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.flags import options as xla_options
from lagom_xla.passes import hlo
from lagom_xla.passes import provenance
from lagom_xla.search.xla import evaluation
import sgd_steps

_WIDTH, _HIDDEN, _ROWS, _LENGTH, _LAYERS = 2048, 8192, 32, 1024, 3
_CLUSTER = cluster_lib.parse("1x8xh100")


def _lowered(
  devices: Any,
  *,
  is_pinned: bool = True,
  is_flat: bool = False,
  is_unrolled: bool = False,
  num_micro: int = 0,
  axes: tuple[str, ...] = ("d",),
  rows: str | tuple[str, ...] = "d",
  is_sharded: bool = True,
  num_words: int = 256,
) -> jax.stages.Lowered:
  """Perceptrons in a scan, with momentum; FSDP over "d"."""
  shape = (8,) if len(axes) == 1 else (4, 2)
  mesh = Mesh(np.array(devices).reshape(shape), axes)

  def named(*spec):
    return NamedSharding(mesh, P(*spec))

  def layer(x, w):
    if is_pinned:
      x = jax.lax.with_sharding_constraint(x, named(rows))
    return x + jnp.tanh(x @ w["up"]) @ w["down"], None

  def loss(params, batch):
    x = params["table"][batch.reshape(-1) if is_flat else batch]
    layers = {"up": params["up"], "down": params["down"]}
    x, _ = jax.lax.scan(layer, x, layers, unroll=is_unrolled)
    return jnp.mean(x.astype(jnp.float32) ** 2)

  def step(state, batch):
    params = state["params"]
    if num_micro:
      parts = batch.reshape(num_micro, -1, *batch.shape[1:])
      grads, _ = jax.lax.scan(
        lambda g, b: (
          jax.tree.map(jnp.add, g, jax.grad(loss)(params, b)),
          None,
        ),
        jax.tree.map(jnp.zeros_like, params),
        parts,
      )
    else:
      grads = jax.grad(loss)(params, batch)
    mean = jax.tree.map(lambda m, g: 0.9 * m + g, state["mean"], grads)
    params = jax.tree.map(lambda p, m: p - m, params, mean)
    return {"params": params, "mean": mean}

  def weights():
    parts = {
      "table": ((num_words, _WIDTH), ("d",)),
      "up": ((_LAYERS, _WIDTH, _HIDDEN), (None, None, "d")),
      "down": ((_LAYERS, _HIDDEN, _WIDTH), (None, "d")),
    }
    return {
      name: jax.ShapeDtypeStruct(
        shape, jnp.bfloat16, sharding=named(*spec * is_sharded)
      )
      for name, (shape, spec) in parts.items()
    }

  state = {"params": weights(), "mean": weights()}
  batch = jax.ShapeDtypeStruct(
    (_ROWS, _LENGTH), jnp.int32, sharding=named(rows)
  )
  out = jax.tree.map(lambda x: x.sharding, state)
  jitted = jax.jit(step, donate_argnums=0, out_shardings=out)
  return jitted.lower(state, batch)


def _read(
  lowered: jax.stages.Lowered,
) -> tuple[step_lib.Step, tuple[explanation_lib.Advice, ...]]:
  target = target_lib.of_step(lowered, _CLUSTER, name="step")
  step = evaluation.scheduled_step(target)
  return step, advice_lib.of_step(step, target)


def _step_us(step: step_lib.Step) -> float:
  return step.timeline(step.default).step_time_us


@pytest.fixture(scope="module")
def pinned(h100s: Any) -> step_lib.Step:
  step, advice = _read(_lowered(h100s))
  assert not advice
  return step


@pytest.mark.parametrize("is_flat", [False, True])
def test_unpinned_activations_are_reported_with_line_and_gain(
  h100s: Any, pinned: step_lib.Step, is_flat: bool
) -> None:
  step, (advice,) = _read(_lowered(h100s, is_pinned=False, is_flat=is_flat))
  assert advice.about == "Activations"
  rows = f"{_ROWS * _LENGTH}" if is_flat else f"{_ROWS},{_LENGTH}"
  assert f"moves an activation, bf16[{rows},{_WIDTH}], at" in advice.sentence
  assert "with_sharding_constraint(x, NamedSharding(mesh, P('d')))" in (
    advice.sentence
  )
  (line,) = re.findall(
    r"input of each layer at advice_test\.py:(\d+)", advice.sentence
  )
  source = pathlib.Path(__file__).read_text(encoding="utf-8").splitlines()
  assert source[int(line) - 1].strip().startswith("return x + jnp.tanh(x @ ")
  if not is_flat:
    gain_us = _step_us(step) - _step_us(pinned)
    assert advice.gain_us == pytest.approx(gain_us, rel=0.05)
  # Without the target, the gain is the lost time.
  (of_module,) = advice_lib.of_step(step)
  assert of_module.about == "Activations" and of_module.gain_us > 0


def test_a_larger_batch_is_not_advised_to_hide_activations(h100s: Any) -> None:
  step, _ = _read(_lowered(h100s, is_pinned=False))
  for one in explaining.of_step(step).before.collectives:
    if any(array.kind == "activation" for array in one.moves):
      assert not any(text.startswith("Batch") for text in one.advice)


def test_micro_batches_of_a_reshape_are_advised_to_be_pinned(
  h100s: Any,
) -> None:
  _, (advice, *_) = _read(_lowered(h100s, num_micro=4))
  assert advice.about == "Micro-batches" and advice.gain_us > 0
  assert "P(None, 'd')" in advice.sentence


@pytest.mark.parametrize("is_unrolled", [False, True])
def test_an_unused_mesh_axis_is_reported_with_the_gain_of_using_it(
  h100s: Any, is_unrolled: bool
) -> None:
  axes = ("d", "idle")
  step, (advice,) = _read(_lowered(h100s, axes=axes, is_unrolled=is_unrolled))
  assert advice.about == "Mesh axis"
  assert "'idle' (2)" in advice.sentence
  assert "P(('d', 'idle'))" in advice.sentence
  after, _ = _read(
    _lowered(h100s, axes=axes, rows=axes, is_unrolled=is_unrolled)
  )
  gain_us = _step_us(step) - _step_us(after)
  assert advice.gain_us == pytest.approx(gain_us, rel=0.01)
  assert gain_us > 0.3 * _step_us(step)


def test_a_table_that_is_gathered_only_for_lookups_is_recognized(
  h100s: Any,
) -> None:
  step, found = _read(_lowered(h100s, num_words=16384))
  arrays = provenance.of(step.analysis.module)
  looked_up = [
    arrays.moved(one)
    for one in step.analysis.collectives
    if arrays.is_only_looked_up(one)
  ]
  ((table,),) = looked_up
  assert table.names == ("state['params']['table']",)
  # Sharding by columns would lengthen kernels, so it is not advised.
  assert not found


def test_a_table_sharded_by_rows_is_reported_with_the_gain_of_columns(
  h100s: Any,
) -> None:
  mesh = Mesh(np.array(h100s), ("d",))

  def step(params, ids):
    def loss(params):
      x = jnp.take(params["table"], ids, axis=0)
      x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("d")))
      return jnp.mean(jnp.tanh(x @ params["w"]).astype(jnp.float32) ** 2)

    return jax.tree.map(jnp.subtract, params, jax.grad(loss)(params))

  def read(*spec):
    params = _arrays(
      mesh,
      table=((64 * _WIDTH, _WIDTH), spec),
      w=((_WIDTH, _HIDDEN), ()),
    )
    out = jax.tree.map(lambda x: x.sharding, params)
    ids = jax.ShapeDtypeStruct(
      (_ROWS, _LENGTH), jnp.int32, sharding=NamedSharding(mesh, P("d"))
    )
    return _read(
      jax.jit(step, donate_argnums=0, out_shardings=out).lower(params, ids)
    )

  by_rows, (advice,) = read("d")
  by_columns, found = read(None, "d")
  assert advice.about == "Embedding" and not found
  assert "its rows of params['table'] for all GPUs at" in advice.sentence
  gain_us = _step_us(by_rows) - _step_us(by_columns)
  assert advice.gain_us == pytest.approx(gain_us, rel=0.01)


def _arrays(mesh: Mesh, **shapes: Any) -> dict[str, jax.ShapeDtypeStruct]:
  return {
    name: jax.ShapeDtypeStruct(
      shape, jnp.bfloat16, sharding=NamedSharding(mesh, P(*spec))
    )
    for name, (shape, spec) in shapes.items()
  }


def _tokens(mesh: Mesh, axis: str, length: int) -> jax.ShapeDtypeStruct:
  sharding = NamedSharding(mesh, P(axis))
  return jax.ShapeDtypeStruct((16, length), jnp.int32, sharding=sharding)


def test_a_frozen_lookup_table_is_advised_to_be_sharded_by_columns(
  h100s: Any,
) -> None:
  mesh = Mesh(np.array(h100s), ("d",))

  def loss(weight, table, tokens):
    x = table[tokens]
    x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("d")))
    return jnp.mean(jnp.tanh(x @ weight).astype(jnp.float32) ** 2)

  def step(params, tokens):
    weight, table = params["weight"], params["table"]
    new = weight - jax.grad(loss)(weight, table, tokens)
    return {"weight": new, "table": table}

  size = 131072
  params = _arrays(
    mesh,
    weight=((_WIDTH, 4 * _WIDTH), (None, "d")),
    table=((size, _WIDTH), ("d",)),
  )
  tokens = _tokens(mesh, "d", 8192)
  out = jax.tree.map(lambda a: a.sharding, params)
  jitted = jax.jit(step, donate_argnums=0, out_shardings=out)
  compiled, (advice,) = _read(jitted.lower(params, tokens))
  assert advice.about == "Embedding"
  assert f"table'], bf16[{size},{_WIDTH}] to look" in advice.sentence
  assert re.search(
    r"at advice_test\.py:\d+\. Shard.*P\(None, 'd'\)", (advice.sentence)
  )
  assert 0.2 * _step_us(compiled) < advice.gain_us < 0.5 * _step_us(compiled)


@pytest.mark.parametrize("is_pinned", [False, True])
def test_unpinned_logits_on_the_axis_of_the_batch_are_reported(
  h100s: Any, is_pinned: bool
) -> None:
  mesh = Mesh(np.array(h100s), ("d",))

  def pin(x):
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("d")))

  def loss(params, tokens):
    x = pin(params["table"][tokens])
    logits = jnp.einsum("bse,ve->bsv", x, params["head"])
    logits = (pin(logits) if is_pinned else logits).astype(jnp.float32)
    named = jnp.take_along_axis(
      jax.nn.log_softmax(logits), tokens[..., None], 2
    )
    return -jnp.mean(named)

  @jax.jit
  def step(params, tokens):
    grads = jax.grad(loss)(params, tokens)
    return jax.tree.map(lambda p, g: p - g, params, grads)

  params = _arrays(
    mesh,
    table=((32768, _WIDTH), (None, "d")),
    head=((32768, _WIDTH), ("d",)),
  )
  _, found = _read(step.lower(params, _tokens(mesh, "d", 1024)))
  told = [one.sentence for one in found if one.about == "Activations"]
  if is_pinned:
    assert not told
  else:
    (said,) = told
    assert "bf16[16,1024,32768]: y = jax.lax.with_sharding" in said
    assert "Pin the matmul at advice_test.py:" in said
    assert "NamedSharding(mesh, P('d'))" in said


@pytest.mark.parametrize("is_scanned", [True, False])
@pytest.mark.parametrize("fsdp", [True, False])
def test_pins_with_tensor_parallelism_are_advised_only_under_fsdp(
  h100s: Any, fsdp: bool, is_scanned: bool
) -> None:
  mesh = Mesh(np.array(h100s).reshape(2, 4), ("data", "model"))
  over = "data" if fsdp else None

  def layer(x, weights):
    hidden = x @ weights["up"]
    return x + (hidden + hidden**3) @ weights["down"], None

  def loss(params, tokens):
    x, layers = params["table"][tokens], params["layers"]
    if is_scanned:
      x, _ = jax.lax.scan(layer, x, layers)
    else:
      for number in range(_LAYERS):
        x, _ = layer(x, {name: w[number] for name, w in layers.items()})
    return jnp.mean(x.astype(jnp.float32) ** 2)

  @jax.jit
  def step(params, tokens):
    grads = jax.grad(loss)(params, tokens)
    return jax.tree.map(lambda p, g: p - g, params, grads)

  layers = _arrays(
    mesh,
    up=((_LAYERS, _WIDTH, _HIDDEN), (None, over, "model")),
    down=((_LAYERS, _HIDDEN, _WIDTH), (None, "model", over)),
  )
  table = _arrays(mesh, table=((1024, _WIDTH), ("model", over)))
  tokens = _tokens(mesh, "data", 1024)
  _, found = _read(step.lower({"layers": layers, **table}, tokens))
  # Without FSDP the partitioner does as Megatron-LM does.
  said = [one.sentence for one in found if one.about == "Activations"]
  assert bool(said) == fsdp
  if fsdp:
    assert "layer at advice_test.py:" in said[0]
    assert f"bf16[16,1024,{_WIDTH}]: x = jax.lax.with_sh" in said[0]
    assert "P('data')" in said[0]


def test_a_replicated_batch_gets_advice_to_replicate_activations(
  h100s: Any,
) -> None:
  mesh = Mesh(np.array(h100s), ("model",))

  @jax.checkpoint
  def layer(x, w):
    x = x + jnp.tanh(x @ w["up"]) * (x @ w["gate"]) @ w["down"]
    return x + jnp.tanh(x @ w["up"]) @ w["down"], None

  def loss(params, tokens):
    x, _ = jax.lax.scan(layer, params["table"][tokens], params["layers"])
    return jnp.mean(x.astype(jnp.float32) ** 2)

  @jax.jit
  def step(params, tokens):
    grads = jax.grad(loss)(params, tokens)
    return jax.tree.map(lambda p, g: p - g, params, grads)

  size = (_LAYERS, _WIDTH, _WIDTH)
  layers = _arrays(
    mesh,
    up=(size, (None, None, "model")),
    gate=(size, (None, None, "model")),
    down=(size, (None, "model")),
  )
  # The outputs of layers get the embedding's sharding by columns.
  table = _arrays(mesh, table=((1024, _WIDTH), (None, "model")))
  tokens = jax.ShapeDtypeStruct(
    (16, 1024), jnp.int32, sharding=NamedSharding(mesh, P())
  )
  _, (advice,) = _read(step.lower({"layers": layers, **table}, tokens))
  assert advice.about == "Activations"
  assert "sharding_constraint(x, NamedSharding(mesh, P()))" in advice.sentence


@pytest.mark.parametrize(
  "widths",
  [(_WIDTH, _WIDTH), (_WIDTH, 3 * _WIDTH // 4, _WIDTH // 2, _WIDTH)],
  ids=["one matrix", "combined"],
)
@pytest.mark.parametrize("is_summed_first", [False, True])
def test_gradients_reduced_in_each_micro_batch_are_reported(
  h100s: Any, is_summed_first: bool, widths: Sequence[int]
) -> None:
  mesh = Mesh(np.array(h100s), ("d",))

  def layer(x, matrices):  # XLA combines the gradients of several matrices.
    for matrix in matrices:
      x = jnp.tanh(x @ matrix)
    return x, None

  def loss(weights, x):
    x, _ = jax.lax.scan(layer, x, weights)
    return jnp.sum(x.astype(jnp.float32) ** 2)

  def gradient(weights, batch):
    def add(total, part):
      grads = jax.grad(loss)(weights, part)
      return jax.tree.map(jnp.add, total, grads), None

    if is_summed_first:
      weights = jax.lax.pcast(weights, "d", to="varying")
    zeros = jax.tree.map(jnp.zeros_like, weights)
    total, _ = jax.lax.scan(add, zeros, batch)
    return jax.lax.psum(total, "d") if is_summed_first else total

  @jax.jit
  def step(weights, batch):
    mapped = gradient
    if is_summed_first:
      specs = (P(), P(None, "d"))
      mapped = jax.shard_map(gradient, in_specs=specs, out_specs=P(), mesh=mesh)
    grads = mapped(weights, batch)
    return jax.tree.map(lambda w, g: w - g * jnp.abs(g), weights, grads)

  sizes = {str(size): size for size in itertools.pairwise(widths)}
  matrices = {name: ((_LAYERS, *size), ()) for name, size in sizes.items()}
  batch = _arrays(mesh, batch=((4, 4096, _WIDTH), (None, "d")))["batch"]
  weights = [*_arrays(mesh, **matrices).values()]
  _, found = _read(step.lower(weights, batch))
  told = [one for one in found if one.about == "Accumulation"]
  assert bool(told) == (not is_summed_first)
  if told:
    assert found[0] == told[0]
    assert "in each of 4 micro-batches, only to add up" in told[0].sentence


def test_a_micro_batch_that_xla_peels_off_the_loop_is_counted(
  h100s: Any,
) -> None:
  mesh = Mesh(np.array(h100s), ("d",))

  def loss(weights, x):
    for weight in weights:
      x = jnp.tanh(x @ weight)
    return jnp.sum(x.astype(jnp.float32) ** 2)

  # One trip is then outside of the loop.
  pipelined = xla_options.translate("xla_gpu_enable_pipelined_all_gather", True)
  assert not isinstance(pipelined, str)

  step = sgd_steps.accumulated(loss)
  step = jax.jit(step, compiler_options=dict([pipelined]))
  matrices = {name: ((_WIDTH, _WIDTH), ("d",)) for name in "abc"}
  batch = _arrays(mesh, batch=((4, 4096, _WIDTH), (None, "d")))["batch"]
  weights = [*_arrays(mesh, **matrices).values()]
  found, advice = _read(step.lower(weights, batch))
  trips = {found.analysis.module.trip_count(one) for one in _loops(found)}
  assert trips == {3}
  (told,) = (one for one in advice if one.about == "Accumulation")
  assert "in each of 4 micro-batches" in told.sentence


def _scanned_loss(weights: jax.Array, x: jax.Array) -> jax.Array:
  x, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)
  return jnp.sum(x.astype(jnp.float32) ** 2)


def _listed_loss(weights: Mapping[str, jax.Array], x: jax.Array) -> jax.Array:
  for weight in weights.values():
    x = jnp.tanh(x @ weight)
  return jnp.sum(x.astype(jnp.float32) ** 2)


def _in_a_row(gradient: Any, weights: Any, batch: Any) -> Any:
  total = None
  for part in batch:
    grads = gradient(weights, part)
    if total is not None:
      grads = jax.tree.map(jnp.add, total, grads)
    total = jax.lax.optimization_barrier(grads)
  return total


def _unrolled_in_part(gradient: Any, weights: Any, batch: Any) -> Any:
  def add(total, part):
    return jax.tree.map(jnp.add, total, gradient(weights, part)), None

  zeros = jax.tree.map(jnp.zeros_like, weights)
  return jax.lax.scan(add, zeros, batch, unroll=2)[0]


# XLA combines all-reduces of arrays, within a micro-batch and across them.
@pytest.mark.parametrize("are_layers_scanned", [False, True])
@pytest.mark.parametrize("accumulate", [_in_a_row, _unrolled_in_part])
def test_micro_batches_are_counted_however_they_are_written(
  h100s: Any, accumulate: Any, are_layers_scanned: bool
) -> None:
  mesh, size = Mesh(np.array(h100s), ("d",)), (_WIDTH, _WIDTH)

  @jax.jit
  def step(weights, batch):
    loss = _scanned_loss if are_layers_scanned else _listed_loss
    grads = accumulate(jax.grad(loss), weights, batch)
    return jax.tree.map(lambda w, g: w - g * jnp.abs(g), weights, grads)

  arrays = _arrays(
    mesh,
    batch=((4, 8192, _WIDTH), (None, "d")),
    stack=((_LAYERS, *size), ()),
    **{name: (size, ()) for name in "abcd"},
  )
  batch, stack = arrays.pop("batch"), arrays.pop("stack")
  weights = stack if are_layers_scanned else arrays
  found, advice = _read(step.lower(weights, batch))
  reductions = [c for c in found.analysis.collectives if c.kind == "all-reduce"]
  arrays_of = provenance.of(found.analysis.module)
  assert {arrays_of.times_added_up(one) for one in reductions} == {4}
  (told,) = (one for one in advice if one.about == "Accumulation")
  assert "in each of 4 micro-batches" in told.sentence


def test_tied_weights_do_not_count_as_more_micro_batches(h100s: Any) -> None:
  mesh = Mesh(np.array(h100s), ("d",))

  def loss(weights, tokens):
    rows, whole = (NamedSharding(mesh, spec) for spec in (P("d"), P()))
    x = jax.lax.with_sharding_constraint(weights["table"], whole)[tokens]
    for name in "abc":
      x = jax.lax.with_sharding_constraint(x, rows)
      x = jnp.tanh(x @ weights[name])
    x = jax.lax.with_sharding_constraint(x, rows)
    # XLA adds gradients of the table up before it reduces them, if it can.
    logits = (x @ (2 * weights["table"]).T).astype(jnp.float32)
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1))

  step = jax.jit(sgd_steps.accumulated(loss))
  size = (2 * _WIDTH, 2 * _WIDTH)  # XLA combines no two of them.
  matrices = {name: (size, ("d",)) for name in "abc"}
  arrays = _arrays(mesh, table=((32768, size[0]), (None, "d")), **matrices)
  tokens = jax.ShapeDtypeStruct(
    (4, 32768), jnp.int32, sharding=NamedSharding(mesh, P(None, "d"))
  )
  found, advice = _read(step.lower(arrays, tokens))
  arrays_of = provenance.of(found.analysis.module)
  times = {
    arrays_of.times_added_up(one)
    for one in found.analysis.collectives
    if one.kind == "reduce-scatter"
  }
  assert times == {4, 8}
  (told,) = (one for one in advice if one.about == "Accumulation")
  assert "in each of 4 micro-batches" in told.sentence


def _loops(step: step_lib.Step) -> list[hlo.Instruction]:
  return [
    instruction
    for computation in step.analysis.module.computations.values()
    for instruction in computation.instructions
    if instruction.opcode == "while"
  ]


def test_gradients_of_stacked_layers_are_not_reported_as_accumulated(
  h100s: Any,
) -> None:
  step, found = _read(_lowered(h100s, is_unrolled=True, is_sharded=False))
  assert any(c.kind == "all-reduce" for c in step.analysis.collectives)
  assert not found


def test_small_replicated_optimizer_state_gets_no_advice(h100s: Any) -> None:
  _, found = _read(_lowered(h100s, is_sharded=False))
  num_bytes = 2 * _LAYERS * _WIDTH * _HIDDEN * 2
  # The state takes little of a GPU's memory here.
  assert num_bytes < 0.02 * _CLUSTER.gpu.hbm_bytes and not found


def test_an_array_that_is_gathered_and_resharded_is_reported(
  h100s: Any,
) -> None:
  mesh = Mesh(np.array(h100s).reshape(2, 2, 2), ("a", "b", "c"))

  def named(*spec):
    return NamedSharding(mesh, P(*spec))

  def step(w, x):
    def loss(w):
      h = jax.lax.with_sharding_constraint(x @ w, named(None, ("a", "b", "c")))
      h = jax.lax.with_sharding_constraint(
        h.reshape(1024, 3, -1), named(None, ("a", "b"), "c")
      )
      return jnp.mean(jnp.tanh(h.reshape(-1, 256) @ w[:256]) ** 2)

    return w - jax.grad(loss)(w)

  w = jax.ShapeDtypeStruct((768, 768), jnp.float32, sharding=named("a"))
  x = jax.ShapeDtypeStruct(
    (1024, 768), jnp.float32, sharding=named(("a", "b", "c"))
  )
  _, found = _read(jax.jit(step).lower(w, x))
  (advice,) = (one for one in found if one.about == "Rematerialization")
  assert "fully gathers an activation, f32[1024,768]" in advice.sentence


def test_a_gathered_array_that_matmuls_need_is_not_reported(
  h100s: Any,
) -> None:
  mesh = Mesh(np.array(h100s), ("t",))

  def pin(x, *spec):
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))

  def step(weights, x):
    def loss(weights):
      h = pin(x)  # Products take all rows, sums their own.
      y = jnp.tanh(pin(h @ weights["up"], None, "t")) @ weights["down"]
      return jnp.mean(pin(h + y, "t") ** 2)

    return jax.tree.map(jnp.subtract, weights, jax.grad(loss)(weights))

  arrays = _arrays(
    mesh,
    up=((_WIDTH, _HIDDEN), (None, "t")),
    down=((_HIDDEN, _WIDTH), ("t",)),
    x=((8 * _WIDTH, _WIDTH), ("t",)),
  )
  x = arrays.pop("x")
  step, found = _read(jax.jit(step).lower(arrays, x))
  gathers = [c for c in step.analysis.collectives if c.kind == "all-gather"]
  assert gathers
  assert not any(one.about == "Rematerialization" for one in found)
