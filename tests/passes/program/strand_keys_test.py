# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA combines collectives within strands, and none across them."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxlib.mlir import ir
import numpy as np
import pytest

from lagom_xla import cluster
from lagom_xla.compile import compiler
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes.program import mlir
from lagom_xla.passes.program import rewrite
from lagom_xla.passes.program.form import Form
import rewritten

_NUM_LAYERS = 3
_WIDTH, _HIDDEN, _NUM_ROWS = 64, 128, 256

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
  dtype: Any = jnp.bfloat16,
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
    return jax.tree.map(lambda w, g: w - dtype(1e-3) * g, weights, sums)

  def shape(spec: P, *sizes: int) -> jax.ShapeDtypeStruct:
    sharding = NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(sizes, dtype, sharding=sharding)

  sharded = jax.shard_map(
    step, mesh=mesh, in_specs=(specs, rows_spec), out_specs=specs
  )
  return jax.jit(sharded).lower(
    {
      "up": shape(specs["up"], _NUM_LAYERS, _WIDTH, _HIDDEN),
      "down": shape(specs["down"], _NUM_LAYERS, _HIDDEN, _WIDTH),
    },
    shape(rows_spec, num_micro_batches, _NUM_ROWS, _WIDTH),
  )


def _lower_gspmd(devices: Sequence[jax.Device]) -> jax.stages.Lowered:
  """Two unrolled micro-batches whose collectives XLA has yet to place."""
  mesh = jax.make_mesh((8,), ("x",), (AxisType.Auto,), devices=devices)

  def sharded(*spec: str | None) -> NamedSharding:
    return NamedSharding(mesh, P(*spec))

  def loss(weights: Any, x: jax.Array) -> jax.Array:
    for _ in range(2):
      x = jax.nn.relu(x @ weights["up"]) @ weights["down"]
      x = jax.lax.with_sharding_constraint(x, sharded(None, None))
    return jnp.sum(x)

  def step(weights: Any, rows: jax.Array) -> Any:
    first, second = (jax.grad(loss)(weights, rows[m]) for m in range(2))
    return jax.tree.map(jnp.add, first, second)

  def shape(spec: NamedSharding, *sizes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, jnp.bfloat16, sharding=spec)

  weights = {
    "up": shape(sharded(None, "x"), _WIDTH, _HIDDEN),
    "down": shape(sharded("x", None), _HIDDEN, _WIDTH),
  }
  return jax.jit(step).lower(
    weights, shape(sharded(None, None, None), 2, _NUM_ROWS, _WIDTH)
  )


Lower = Callable[..., jax.stages.Lowered]
KEYED = Form(keyed=True)


def module_of(lowered: jax.stages.Lowered) -> ir.Module:
  module: Any = lowered.compiler_ir("stablehlo")
  return module


def in_form(
  lowered: jax.stages.Lowered, strands: Any = "none", *, keyed: bool = True
) -> tuple[jax.stages.Lowered, int]:
  """A step in a form, and in how many blocks strands have keys."""
  form = Form(strands=strands, keyed=keyed)
  in_form, outcome = rewritten.lower_rewritten(lowered, form)
  assert outcome.actions
  return in_form, sum("stay apart" in action for action in outcome.actions)


def num_run(module: hlo.Module) -> int:
  """Collectives that a step runs."""
  return sum(c.executions for c in collectives.find(module))


def gathered_bytes(module: hlo.Module) -> int:
  return sum(
    c.result_bytes * c.executions
    for c in collectives.find(module)
    if c.kind == "all-gather"
  )


def operations_of(module: ir.Module, name: str) -> list[ir.Operation]:
  inner = mlir.inner_operations(module.operation)
  return [operation for operation in inner if operation.name == name]


def keys_of(module: ir.Module, name: str) -> collections.Counter[str]:
  """How many of the operations of a name bear each key.

  What is gathered a trip ahead is no strand's, and bears none.
  """
  found: collections.Counter[str] = collections.Counter()
  for operation in operations_of(module, name):
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
def test_only_keys_keep_xla_from_combining_across_strands_that_share_a_loop(
  lower_h100, scheduled, strands, num_keyed
):
  plain = lower_h100()
  coupled, _ = in_form(plain, strands, keyed=False)
  apart, num = in_form(plain, strands)
  assert num == num_keyed
  num_alone = num_run(scheduled(plain))
  assert num_run(scheduled(coupled)) < num_alone
  # More where the last trip, which now stands alone, is combined less.
  assert num_run(scheduled(apart)) >= num_alone


@pytest.mark.parametrize("num_micro_batches", [2, 3])
def test_only_keys_keep_xla_from_combining_across_unrolled_strands(
  lower_h100, scheduled, num_micro_batches
):
  lower_ = functools.partial(lower_h100, scan=False)
  coupled = lower_(num_micro_batches=num_micro_batches)
  apart, num_keyed = in_form(coupled)
  assert num_keyed == 1
  num_of_one = num_run(scheduled(lower_(num_micro_batches=1)))
  assert num_run(scheduled(coupled)) < num_micro_batches * num_of_one
  assert num_run(scheduled(apart)) == num_micro_batches * num_of_one


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("layer", [_tp_layer, _fsdp_layer])
def test_layers_are_no_strands(lower_h100, layer, scan):
  lowered = lower_h100(num_micro_batches=1, layer=layer, scan=scan)
  module = module_of(lowered)
  same, outcome = rewrite.rewrite(module, KEYED)
  assert same is module and not outcome.actions


@pytest.mark.parametrize("remat", [False, True])
@pytest.mark.parametrize("keyed", [False, True])
def test_merged_strands_gather_their_common_weights_once(
  lower_h100, scheduled, remat, keyed
):
  plain = lower_h100(layer=_fsdp_layer, remat=remat)
  merged, _ = in_form(plain, "merged", keyed=keyed)
  num_bytes = gathered_bytes(scheduled(plain))
  assert 2 * gathered_bytes(scheduled(merged)) == num_bytes


def test_what_a_strand_computes_from_what_it_saved_is_its_own(h100s):
  mesh = Mesh(np.array(h100s), ("x",))

  def strand(weights: Any, saved: jax.Array) -> jax.Array:
    def trip(total: jax.Array, per_layer: Any) -> tuple[jax.Array, None]:
      # What is gathered and reduced depends on nothing that trips change.
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
      "up": jnp.zeros((_NUM_LAYERS, _WIDTH, _HIDDEN)),
      "down": jnp.zeros((_NUM_LAYERS, _HIDDEN, _WIDTH)),
    },
    jnp.zeros((2, _NUM_LAYERS, _NUM_ROWS, _WIDTH)),
  )
  keyed, _ = in_form(lowered, "merged")
  for name in ("stablehlo.all_gather", "stablehlo.reduce_scatter"):
    assert keys_of(module_of(keyed), name) == {"strand 0": 1, "strand 1": 1}


def test_a_key_that_is_there_stays(lower_h100):
  lowered = lower_h100(scan=False)
  module = module_of(lowered)
  with module.context, ir.Location.unknown():
    own = ir.Attribute.parse('{combiner_key = "own", other = "kept"}')
    for operation in operations_of(module, "stablehlo.all_gather"):
      operation.attributes["mhlo.frontend_attributes"] = own
  keyed, _ = in_form(lowered)
  module = module_of(keyed)
  assert set(keys_of(module, "stablehlo.all_gather")) == {"own"}
  assert set(keys_of(module, "stablehlo.reduce_scatter")) == {
    "strand 0",
    "strand 1",
  }


def test_xlas_partitioner_hands_keys_on_to_the_collectives_that_it_places(
  h100s,
):
  lowered, num_keyed = in_form(_lower_gspmd(h100s))
  assert num_keyed == 1
  step = lowered_lib.LoweredStep(lowered, cluster.parse("1x8xh100"))
  module = compiler.start_before_combining(step).result()
  found = collections.Counter(
    i.frontend_attributes.map["combiner_key"]
    for c in module.computations.values()
    for i in c.instructions
    if i.opcode == "all-reduce"
  )
  assert found["strand 0"] == found["strand 1"] > 0
  assert set(found) == {"strand 0", "strand 1"}


def test_keys_change_no_bit_of_what_is_computed():
  lowered = _lower(jax.devices()[:8], dtype=jnp.float32)
  keyed, _ = in_form(lowered, "merged")
  plain, _ = in_form(lowered, "merged", keyed=False)
  specs, _ = lowered.in_avals
  results = []
  for step in (keyed.compile(), plain.compile()):
    generator = np.random.default_rng(0)
    arguments = jax.tree.map(
      lambda spec, g=generator: g.normal(size=spec.shape, scale=0.1).astype(
        spec.dtype
      ),
      specs,
    )
    results.append(step(*jax.device_put(arguments, step.input_shardings[0])))
  assert any(np.any(np.asarray(g)) for g in jax.tree.leaves(results))
  jax.tree.map(np.testing.assert_array_equal, *results)
