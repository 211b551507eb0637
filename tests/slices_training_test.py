# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training in pieces: ten steps with slices compute what they do without.

Tensor and sequence parallelism over eight CPU devices, with the state donated:
once with collectives in a `shard_map`, and once with sharding constraints of
which XLA's partitioner makes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
import re
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import AxisType
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

from lagom_xla.passes.program.form import Form
from lagom_xla.passes.program.slices import chains
import rewritten

_LAYERS = 2
_BATCH = 4
_TOKENS = 64
_WIDTH = 16
_HIDDEN = 32
_STEPS = 10

Weights = dict[str, jax.Array]
Layer = Callable[[jax.Array, Weights], tuple[jax.Array, None]]


def _mesh() -> Mesh:
  return Mesh(np.array(jax.devices()[:8]), ("tp",), axis_types=(AxisType.Auto,))


_SPLIT = P(None, "tp", None)
_SPECS = {"up": P(None, None, "tp"), "down": P(None, "tp", None)}


def _sharding(spec: P) -> NamedSharding:
  return NamedSharding(_mesh(), spec)


def _written_out(x: jax.Array, weights: Weights) -> tuple[jax.Array, None]:
  whole = lax.all_gather(jnp.tanh(x), "tp", axis=1, tiled=True)
  hidden = jax.nn.silu(whole @ weights["up"])
  out = hidden @ weights["down"]
  return x + lax.psum_scatter(out, "tp", scatter_dimension=1, tiled=True), None


def _constrained(x: jax.Array, weights: Weights) -> tuple[jax.Array, None]:
  def constrain(x: jax.Array, *spec: str | None) -> jax.Array:
    return lax.with_sharding_constraint(x, _sharding(P(*spec)))

  whole = constrain(jnp.tanh(x), None, None, None)
  hidden = constrain(jax.nn.silu(whole @ weights["up"]), None, None, "tp")
  return x + constrain(hidden @ weights["down"], None, "tp", None), None


def _only_at_ends(x: jax.Array, weights: Weights) -> tuple[jax.Array, None]:
  split = _sharding(_SPLIT)
  normal = lax.with_sharding_constraint(jnp.tanh(x), split)
  out = jax.nn.silu(normal @ weights["up"]) @ weights["down"]
  return x + lax.with_sharding_constraint(out, split), None


_LAYERS_OF: dict[str, Layer] = {
  "shard_map": _written_out,
  "constraints": _constrained,
  "constraints at ends": _only_at_ends,
}


def _lower(kind: str, *, unrolled: bool) -> jax.stages.Lowered:
  """Lowers a step (weights, x, target) -> (weights, loss)."""
  layer = _LAYERS_OF[kind]

  def stack(x: jax.Array, weights: Weights) -> jax.Array:
    if unrolled:
      for i in range(_LAYERS):
        x, _ = layer(x, {name: w[i] for name, w in weights.items()})
      return x
    return lax.scan(layer, x, weights)[0]

  forward = stack
  if kind == "shard_map":
    forward = jax.shard_map(
      stack,
      mesh=_mesh(),
      in_specs=(_SPLIT, _SPECS),
      out_specs=_SPLIT,
      check_vma=False,
    )

  def loss_of(weights: Weights, x: jax.Array, target: jax.Array) -> jax.Array:
    return jnp.mean(jnp.square(forward(x, weights) - target))

  def step(weights: Weights, x: jax.Array, target: jax.Array) -> Any:
    loss, grads = jax.value_and_grad(loss_of)(weights, x, target)
    return jax.tree.map(lambda w, g: w - 0.5 * g, weights, grads), loss

  shapes = {
    "up": (_LAYERS, _WIDTH, _HIDDEN),
    "down": (_LAYERS, _HIDDEN, _WIDTH),
  }
  shardings = {name: _sharding(spec) for name, spec in _SPECS.items()}
  weights = {
    name: jax.ShapeDtypeStruct(
      shape, jnp.float32, sharding=shardings[name]
    )
    for name, shape in shapes.items()
  }  # fmt: skip
  rows = jax.ShapeDtypeStruct(
    (_BATCH, _TOKENS, _WIDTH), jnp.float32, sharding=_sharding(_SPLIT)
  )
  jitted = jax.jit(
    step, donate_argnums=0, out_shardings=(shardings, _sharding(P()))
  )
  return jitted.lower(weights, rows, rows)


def _form(lowered: jax.stages.Lowered, dim: int, num: int) -> Form:
  module: Any = lowered.compiler_ir("stablehlo")
  found = [c for c in chains.find(module) if c.label.endswith(f":{dim}")]
  assert all(num in chain.pieces for chain in found)
  return Form(slices={chain.label: num for chain in found})


def _train(compiled: jax.stages.Compiled) -> tuple[Any, np.ndarray]:
  """The weights and all losses of some steps from the same start."""
  random = np.random.default_rng(0)
  shardings = compiled.input_shardings[0]
  weights = {
    "down": random.normal(size=(_LAYERS, _HIDDEN, _WIDTH)),
    "up": random.normal(size=(_LAYERS, _WIDTH, _HIDDEN)),
  }
  rows = [random.normal(size=(_BATCH, _TOKENS, _WIDTH)) for _ in range(2)]
  args = jax.tree.map(
    lambda array, sharding: jax.device_put(
      (array / 4).astype(np.float32), sharding
    ),
    (weights, *rows),
    shardings,
  )
  state, data = args[0], args[1:]
  losses = []
  for _ in range(_STEPS):
    before = state
    state, loss = compiled(state, *data)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before))
    losses.append(np.asarray(loss))
  return jax.tree.map(np.asarray, state), np.stack(losses)


def _num_of(compiled: jax.stages.Compiled) -> tuple[Counter[str], int]:
  """Collectives by kind, and the elements of all their results."""
  num: Counter[str] = Counter()
  elements = 0
  for shapes, kind in re.findall(
    r"= (\S.*?) (all-gather|all-reduce|reduce-scatter|all-to-all"
    r"|collective-permute)\(",
    compiled.as_text() or "",
  ):
    num[kind] += 1
    for sizes in re.findall(r"\w\d+\[([\d,]*)\]", shapes):
      elements += int(np.prod([int(s) for s in sizes.split(",") if s]))
  return num, elements


@pytest.mark.parametrize("unrolled", [False, True], ids=["scanned", "unrolled"])
@pytest.mark.parametrize("kind", _LAYERS_OF)
def test_ten_steps_in_pieces_train_the_same_and_send_the_same(
  kind: str, unrolled: bool
):
  lowered = _lower(kind, unrolled=unrolled)
  as_written = lowered.compile()
  weights, losses = _train(as_written)
  num_before, elements_before = _num_of(as_written)
  assert losses[-1] < 0.9 * losses[0]
  for dim, num in ((1, 2), (1, 4), (0, 2)):
    form = _form(lowered, dim, num)
    compiled, outcome = rewritten.compile_rewritten(lowered, form)
    assert len(outcome.actions) == len(form.slices) > 1
    num_after, elements_after = _num_of(compiled)
    # The cut itself sends nothing: more collectives, but of none other kinds.
    assert set(num_after) == set(num_before)
    assert num_after["all-gather"] > num_before["all-gather"]
    assert elements_after <= elements_before

    cut_weights, cut_losses = _train(compiled)
    # Forward, every number comes from the same operations on the same values.
    assert cut_losses[0] == losses[0]
    # A weight's gradient is a sum over all tokens, in `num` parts: any order of
    # float32 additions is within that many roundings of the sum of magnitudes.
    # The largest weight stands for it, and there are as many as steps.
    roundings = _STEPS * _BATCH * _TOKENS * np.finfo(np.float32).eps
    for name, whole in weights.items():
      bound = roundings * np.abs(whole).max()
      np.testing.assert_allclose(
        cut_weights[name], whole, rtol=0, atol=bound
      )
    np.testing.assert_allclose(cut_losses, losses, rtol=roundings)
