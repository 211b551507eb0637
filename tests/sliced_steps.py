# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps of tensor parallelism, run as written and with chains in pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import AxisType
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxlib.mlir import ir
import numpy as np

from lagom_xla.passes.program.form import Form
from lagom_xla.passes.program.slices import chains
import rewritten

WIDTH = 16
HIDDEN = 32
TOKENS = 64
_LAYERS = 2

Local = Callable[..., Any]


def _mesh(devices: Sequence[jax.Device] | None = None) -> Mesh:
  devices = jax.devices()[:8] if devices is None else devices
  return Mesh(np.array(devices), ("tp",), axis_types=(AxisType.Auto,))


def gather(x: jax.Array, dim: int) -> jax.Array:
  return lax.all_gather(x, "tp", axis=dim, tiled=True)


def scatter(x: jax.Array, dim: int) -> jax.Array:
  return lax.psum_scatter(x, "tp", scatter_dimension=dim, tiled=True)


def _perceptron(x: jax.Array, weights: tuple[jax.Array, jax.Array]):
  """A layer of tensor and sequence parallelism; tokens are dimension -2."""
  up, down = weights
  hidden = jax.nn.silu(gather(jnp.tanh(x), x.ndim - 2) @ up)
  return x + scatter(hidden @ down, x.ndim - 2), None


def _stack(layers: str) -> Local:
  layer = jax.checkpoint(_perceptron) if layers == "remat" else _perceptron

  def run(x: jax.Array, ups: jax.Array, downs: jax.Array) -> jax.Array:
    if layers == "unrolled":
      for up, down in zip(ups, downs, strict=True):
        x, _ = layer(x, (up, down))
      return x
    return lax.scan(layer, x, (ups, downs))[0]

  return run


def _step(local: Local, x_spec: P, mesh: Mesh) -> Local:
  specs = (x_spec, P(None, None, "tp"), P(None, "tp", None))
  forward = jax.shard_map(
    local, mesh=mesh, in_specs=specs, out_specs=x_spec, check_vma=False
  )

  def loss(weights: tuple[jax.Array, jax.Array], x: jax.Array) -> Any:
    out = forward(x, *weights)
    return jnp.mean(jnp.square(out)), out

  def step(weights: tuple[jax.Array, jax.Array], x: jax.Array) -> Any:
    gradient = jax.value_and_grad(loss, has_aux=True)
    value_and_out, gradients = gradient(weights, x)
    new = jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients)
    return new, value_and_out

  return step


def lower(
  layers: str,
  *,
  batch: int | None = None,
  sizes: tuple[int, int, int] = (TOKENS, WIDTH, HIDDEN),
  dtype: Any = jnp.float32,
  devices: Sequence[jax.Device] | None = None,
) -> jax.stages.Lowered:
  """Lowers a train step on perceptrons, donating the weights."""
  mesh = _mesh(devices)
  tokens, width, hidden = sizes
  spec = P("tp", None) if batch is None else P(None, "tp", None)

  def shape(spec: P, *sizes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(
      sizes, dtype, sharding=NamedSharding(mesh, spec)
    )

  weights = (
    shape(P(None, None, "tp"), _LAYERS, width, hidden),
    shape(P(None, "tp", None), _LAYERS, hidden, width),
  )
  rows = (tokens, width) if batch is None else (batch, tokens, width)
  step = _step(_stack(layers), spec, mesh)
  return jax.jit(step, donate_argnums=0).lower(weights, shape(spec, *rows))


def module(lowered: jax.stages.Lowered) -> ir.Module:
  stablehlo: Any = lowered.compiler_ir("stablehlo")
  return stablehlo


def local(
  function: Local, in_specs: Any, out_specs: Any, *shapes: tuple[int, ...]
) -> jax.stages.Lowered:
  """Lowers a function of each device's part of arrays of these shapes."""
  mapped = jax.shard_map(
    function,
    mesh=_mesh(),
    in_specs=in_specs,
    out_specs=out_specs,
    check_vma=False,
  )
  args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
  return jax.jit(mapped).lower(*args)


def found(lowered: jax.stages.Lowered) -> tuple[chains.Chain, ...]:
  return chains.find(module(lowered))


def all_in(lowered: jax.stages.Lowered, num: int, dim: str = "") -> Form:
  """A form with all chains, or all along `dim`, in so many pieces."""
  labels = [c.label for c in found(lowered) if c.label.endswith(dim)]
  return Form(slices=dict.fromkeys(labels, num))


def run(lowered: jax.stages.Lowered, form: Form) -> tuple[Any, Any]:
  """What a step gives as written and in a form that acts in every place."""
  compiled, outcome = rewritten.compile_rewritten(lowered, form)
  assert len(outcome.actions) == len(form.slices) > 0
  assert not outcome.refusals
  results = []
  for executable in (lowered.compile(), compiled):
    random = np.random.default_rng(0)
    args = jax.tree.map(
      lambda info, sharding, r=random: jax.device_put(
        r.normal(size=info.shape).astype(info.dtype), sharding
      ),
      lowered.args_info[0],
      executable.input_shardings[0],
    )
    results.append(jax.tree.map(np.asarray, executable(*args)))
  return results[0], results[1]


def same_bits(lowered: jax.stages.Lowered, form: Form) -> None:
  expected, actual = run(lowered, form)
  jax.tree.map(np.testing.assert_array_equal, actual, expected)
