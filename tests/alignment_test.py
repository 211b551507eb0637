# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Two strands of a loop's body are aligned by what their pairs take."""

from __future__ import annotations

from collections.abc import Sequence
import hashlib
from typing import Any

import hypothesis
from hypothesis import strategies
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxlib.mlir import ir
import numpy as np
import pytest

from lagom_xla import cluster
from lagom_xla.compile import target
from lagom_xla.costs import step as step_lib
from lagom_xla.passes.program.strands import keys as strand_keys
from lagom_xla.passes.program.strands import loop_pairs
from lagom_xla.passes.schedule import alignment
from lagom_xla.passes.schedule import reordering
from lagom_xla.search.xla import alignment as search

_CLUSTER = "1x8xh100"
_NUM_LAYERS, _WIDTH, _HIDDEN, _NUM_ROWS = 4, 4096, 14336, 8192


def megatron_layer(x: jax.Array, weights: Any) -> jax.Array:
  """Tensor and sequence parallel over all devices."""
  rows = jax.lax.all_gather(jnp.tanh(x), "x", axis=0, tiled=True)
  partial = jax.nn.gelu(rows @ weights["up"]) @ weights["down"]
  return x + jax.lax.psum_scatter(partial, "x", scatter_dimension=0, tiled=True)


def train_step(devices: Sequence[jax.Device], *, merged: bool) -> step_lib.Step:
  """A scanned step of two micro-batches, as XLA schedules it."""
  mesh = Mesh(np.array(devices), ("x",))
  specs = {"up": P(None, None, "x"), "down": P(None, "x", None)}
  layer = jax.checkpoint(megatron_layer, prevent_cse=False)

  def loss(weights: Any, x: jax.Array) -> jax.Array:
    x, _ = jax.lax.scan(lambda x, w: (layer(x, w), None), x, weights)
    return jnp.sum(jnp.square(x.astype(jnp.float32)))

  def step(weights: Any, rows: jax.Array) -> Any:
    first, second = (jax.grad(loss)(weights, rows[m]) for m in range(2))
    return jax.tree.map(jnp.add, first, second)

  def shape(spec: P, *sizes: int) -> jax.ShapeDtypeStruct:
    sharding = NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(sizes, jnp.bfloat16, sharding=sharding)

  rows_spec = P(None, "x", None)
  sharded = jax.shard_map(
    step, mesh=mesh, in_specs=(specs, rows_spec), out_specs=specs
  )
  lowered = jax.jit(sharded).lower(
    {
      "up": shape(specs["up"], _NUM_LAYERS, _WIDTH, _HIDDEN),
      "down": shape(specs["down"], _NUM_LAYERS, _HIDDEN, _WIDTH),
    },
    shape(rows_spec, 2, _NUM_ROWS, _WIDTH),
  )
  if merged:
    module: Any = lowered.compiler_ir("stablehlo")
    with module.context, ir.Location.unknown():
      loop_pairs.merge_loops(module)
      strand_keys.key_strands(module)
  parsed = cluster.parse(_CLUSTER)
  of_step = target.of_step(lowered, parsed, name="step")
  return step_lib.of_module(of_step.schedule(), parsed)


@pytest.fixture(scope="module")
def merged_step(h100s: Sequence[jax.Device]) -> step_lib.Step:
  return train_step(h100s, merged=True)


def bodies_of(step: step_lib.Step) -> list[Any]:
  return [
    computation
    for computation in step.analysis.sequences
    if any(c.computation == computation.name for c in step.analysis.collectives)
    and computation.name != step.analysis.module.entry.name
  ]


def test_aligned_strands_take_less_time_than_xlas_order_has_them_take(
  merged_step: step_lib.Step,
):
  configuration = merged_step.default
  aligned = search.align(merged_step, configuration)
  before = merged_step.timeline(configuration)
  after = aligned.timeline(configuration)
  assert after.step_time_us < 0.97 * before.step_time_us
  assert after.kernel_us == pytest.approx(before.kernel_us)
  assert after.collective_us == pytest.approx(before.collective_us)


def test_an_aligned_order_computes_what_xlas_does(merged_step: step_lib.Step):
  aligned = search.align(merged_step, merged_step.default)
  reordering.check(merged_step.analysis.module, aligned.analysis.module)


@hypothesis.settings(max_examples=15)
@hypothesis.given(seed=strategies.integers(0, 2**32 - 1))
def test_whatever_blocks_take_the_order_is_legal(
  merged_step: step_lib.Step, seed: int
):
  def block_us(start: int | None, kernels: tuple[int, ...]) -> float:
    digest = hashlib.sha256(repr((seed, start, kernels)).encode()).digest()
    return 1.0 + int.from_bytes(digest[:2], "big")

  module = merged_step.analysis.module
  for body in bodies_of(merged_step):
    aligned = alignment.align(merged_step.analysis, body, block_us)
    assert aligned is not None
    reordering.check(module, aligned)
    assert aligned.computations[body.id].instructions != body.instructions


def test_a_body_with_one_strand_has_nothing_to_align(
  h100s: Sequence[jax.Device],
):
  step = train_step(h100s, merged=False)
  assert len(bodies_of(step)) == 4
  for body in bodies_of(step):
    assert alignment.align(step.analysis, body, lambda *_: 1.0) is None
  assert search.align(step, step.default) is step


def test_an_order_that_needs_more_memory_than_it_may_is_left(
  merged_step: step_lib.Step,
):
  configuration = merged_step.default
  free = search.align(merged_step, configuration, peak_bytes=1 << 60)
  assert free is not merged_step
  held = search.align(merged_step, configuration, peak_bytes=0)
  reordering.check_memory(merged_step.analysis.module, held.analysis.module, 0)
