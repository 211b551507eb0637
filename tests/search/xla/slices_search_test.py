# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Chains are cut where that is predicted to gain, and kept where it does."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

import formed_target
import hlo_text
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import registry
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program.slices import chains as chains_lib
from lagom_xla.search import nccl
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import forms
from lagom_xla.search.xla import joint
import tensor_parallel_step

_LAYERS = ("layer.0", "layer.1")


def _chain(label: str, num_products: int) -> chains_lib.Chain:
  return chains_lib.Chain(
    label=label,
    where="train.py:7",
    collectives=("stablehlo.all_gather",),
    nccl_bytes=64 * 2**20,
    num_products=num_products,
    pieces=(2, 4, 8),
  )


_CHAINS = (*(_chain(label, 1) for label in _LAYERS), _chain("head", 2))


def _sliced(config: config_lib.XlaConfig) -> hlo.Module:
  """A step that gains by two or four pieces of each layer, and by no others.

  A gather that no chain has is exposed, too; that of "hidden" is not.
  """
  pieces = config.program.slices
  by_layer = {1: 1500.0, 2: 1300.0, 4: 1200.0, 8: 1400.0}
  lines = ["p = f32[256,256] parameter(0)"]
  for label in (*_LAYERS, "head", ""):
    start, done = hlo_text.all_gather(f"gather{label}", 64 * 2**20)
    tag = f', frontend_attributes={{lagom_chain="{label}"}}' if label else ""
    lines += [start + tag, done]
  start, done = hlo_text.all_gather("beside", 64 * 2**20)
  hidden = f'{start}, frontend_attributes={{lagom_chain="hidden"}}'
  lines += [hidden, hlo_text.kernel("long", 5000.0), done]
  for i, label in enumerate(_LAYERS):
    lines.append(hlo_text.kernel(f"layer{i}", by_layer[pieces.get(label, 1)]))
  lines.append(hlo_text.kernel("last", 300.0 * pieces.get("head", 1)))
  return hlo_text.load("\n".join([*lines, "ROOT end = () tuple()"]))


def _cuts(*chains: chains_lib.Chain) -> list[dict[str, int]]:
  asked = formed_target.configs(
    _sliced,
    lambda form: form_lib.Outcome(actions=("Cut.",) if form.slices else ()),
    sliceable=chains,
  )
  cuts = [dict(config.program.slices) for config in asked]
  return [slices for slices in cuts if slices]


def test_chains_that_are_alike_are_cut_alike_while_the_step_gets_shorter():
  assert _cuts(*_CHAINS[:2]) == [
    dict.fromkeys(_LAYERS, num_pieces) for num_pieces in (2, 4, 8)
  ]


def test_chains_are_cut_at_once_and_then_kind_by_kind():
  tried = _cuts(*_CHAINS)
  assert tried[0].keys() == {*_LAYERS, "head"}
  assert all(
    {*_LAYERS} <= slices.keys() or not {*_LAYERS} & slices.keys()
    for slices in tried
  )
  assert len(tried) <= forms.MAX_SLICES


def test_chains_of_which_nothing_is_exposed_are_not_cut():
  assert _cuts(_chain("hidden", 1)) == []


# A real step with chains.


@pytest.fixture(scope="module")
def tensor_parallel() -> target_lib.Target:
  """Two layers alike: tokens gathered, two products, their sum scattered."""
  if registry.plugin_path() is None:
    pytest.skip("JAX's CUDA plugin is not installed (extra aot)")
  mesh = Mesh(np.array(devices_lib.devices(formed_target.H100)), ("tp",))

  def step(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
    for layer in range(2):
      gathered = jax.lax.all_gather(x, "tp", tiled=True)
      partial = jnp.tanh(gathered @ up[layer]) @ down[layer]
      x = jax.lax.psum_scatter(partial, "tp", tiled=True)
    return x

  def shape(spec: P, *sizes: int) -> jax.ShapeDtypeStruct:
    sharding = NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(sizes, jnp.bfloat16, sharding=sharding)

  tokens, up, down = P("tp"), P(None, None, "tp"), P(None, "tp")
  sharded = jax.shard_map(
    step, mesh=mesh, in_specs=(tokens, up, down), out_specs=tokens
  )
  lowered = jax.jit(sharded).lower(
    shape(tokens, 16384, 8192),
    shape(up, 2, 8192, 28672),
    shape(down, 2, 28672, 8192),
  )
  return target_lib.of_step(lowered, formed_target.H100, name="layers")


def test_what_is_exposed_of_a_chain_is_what_its_collectives_expose(
  tensor_parallel,
):
  default = evaluation.evaluate_or_raise(
    config_lib.DEFAULT,
    target=tensor_parallel,
    searcher=nccl.SEARCHERS[nccl.DEFAULT_SEARCHER],
  )
  chains = tensor_parallel.chains()
  (kind,) = forms.of_chains(tensor_parallel, default, chains)
  assert set(kind.labels) == {chain.label for chain in chains}
  assert len(kind.labels) == len(kind.collectives) / 2 == 2
  # All collectives of this step are in its two chains.
  exposed_us = default.under_nccl_defaults.total_exposed_us
  assert kind.exposed_us == pytest.approx(exposed_us)
  assert 0 < kind.gain_us < exposed_us


def test_slices_of_a_real_step_hide_what_was_exposed(tensor_parallel):
  found = joint.search(tensor_parallel, seconds=0, in_process=True)
  cut = [c for c in found.scheduled if c.config.program.slices]
  best = min(cut, key=lambda c: c.tuned.step_time_us)
  assert len(best.config.program.slices) == 2
  before = found.default.tuned
  assert best.tuned.total_exposed_us < before.total_exposed_us
  assert best.tuned.step_time_us < before.step_time_us


# A real step whose collectives XLA's partitioner places.


@pytest.fixture(scope="module", params=["shard_map", "whole at entry"])
def partitioned(
  request: pytest.FixtureRequest,
) -> tuple[target_lib.Target, candidates.Search]:
  """A step as it is written, and with its chains cut."""
  if registry.plugin_path() is None:
    pytest.skip("JAX's CUDA plugin is not installed (extra aot)")
  lowered = tensor_parallel_step.lower(
    request.param,
    tokens=4096,
    width=8192,
    hidden=28672,
    dtype=jnp.bfloat16,
    devices=devices_lib.devices(formed_target.H100),
  )
  target = target_lib.of_step(lowered, formed_target.H100, name="step")
  evaluate = functools.partial(
    evaluation.evaluate_or_raise,
    target=target,
    searcher=nccl.SEARCHERS[nccl.DEFAULT_SEARCHER],
  )
  default = candidates.Search(default=evaluate(config_lib.DEFAULT))
  return target, forms.search_slices(target, default, evaluate)


def test_chains_expose_no_less_where_the_partitioner_drops_their_labels(
  partitioned: tuple[target_lib.Target, candidates.Search],
):
  target, found = partitioned
  kinds = forms.of_chains(target, found.default, target.chains())
  # Both dimensions of a chain have the same collectives.
  by_collectives = {kind.collectives: kind.exposed_us for kind in kinds}
  assert len(by_collectives) == len(kinds) / 2 == 2
  # All but the loss's all-reduce, which is of no chain.
  exposed_us = found.default.under_nccl_defaults.exposed_us
  of_loss = [
    collective.name
    for collective in found.default.step.analysis.collectives
    if collective.kind == "all-reduce"
  ]
  assert len(of_loss) == 1
  assert sum(by_collectives.values()) == pytest.approx(
    sum(us for name, us in exposed_us.items() if name not in of_loss)
  )


def test_cuts_gain_whoever_placed_the_collectives(
  partitioned: tuple[target_lib.Target, candidates.Search],
):
  _, found = partitioned
  quickest = min(found.scheduled, key=lambda c: c.tuned.step_time_us)
  assert quickest.config.program.slices
  before_us = found.default.tuned.step_time_us
  assert quickest.tuned.step_time_us < (1 - candidates.LEAST_GAIN) * before_us
  assert len(found.others) <= forms.MAX_SLICES


def test_pieces_that_xla_combines_again_are_tried_apart(
  partitioned: tuple[target_lib.Target, candidates.Search],
):
  _, found = partitioned
  *_, last = found.scheduled
  together = [c for c in found.scheduled if not c.config.options]
  quickest = min(together, key=lambda c: c.tuned.step_time_us)
  num_operands = {c.num_operands for c in quickest.step.analysis.collectives}
  if num_operands == {1}:
    assert together == [*found.scheduled]
    return
  assert last.config.program == quickest.config.program
  assert set(last.config.options.values()) == {0}
  assert {c.num_operands for c in last.step.analysis.collectives} == {1}


def test_only_pieces_of_partitioned_programs_are_combined_again(
  partitioned: tuple[target_lib.Target, candidates.Search],
  request: pytest.FixtureRequest,
):
  _, found = partitioned
  is_written_out = "shard_map" in request.node.name
  assert any(c.config.options for c in found.others) != is_written_out
