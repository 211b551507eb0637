# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Chains of collectives that XLA's partitioner makes are found and cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxlib.mlir import ir
import pytest

from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.form import Form
from lagom_xla.passes.program.slices import chains
import rewritten
import tensor_parallel_step as tp

_UNCOMBINED = {
  f"xla_gpu_{kind}_combine_threshold_bytes": 1
  for kind in ("all_gather", "reduce_scatter")
}
_CONSTRAINED = [kind for kind in tp.KINDS if kind != "shard_map"]


def _module(lowered: jax.stages.Lowered) -> ir.Module:
  module: Any = lowered.compiler_ir("stablehlo")
  return module


def _sent(module: hlo.Module) -> tuple[Counter[str], Counter[str]]:
  """How often collectives of each kind run, and the bytes that NCCL counts."""
  num: Counter[str] = Counter()
  num_bytes: Counter[str] = Counter()
  for collective in collectives.find(module):
    num[collective.kind] += collective.executions
    num_bytes[collective.kind] += collective.executions * collective.nccl_bytes
  return num, num_bytes


@pytest.mark.parametrize("kind", _CONSTRAINED)
def test_constraints_have_the_chains_that_a_shard_map_has(kind: str):
  module = _module(tp.lower(kind))
  before = str(module)
  found = chains.find(module)
  assert str(module) == before  # It stays as it was.
  written_out = chains.find(_module(tp.lower("shard_map")))
  of_tokens = [c for c in found if c.label.endswith(":1")]
  expected = [c for c in written_out if c.label.endswith(":1")]
  assert len(of_tokens) == len(expected) == 2
  forward, backward = of_tokens
  assert forward.num_products == 2
  # The gradients of both weights are sums over the pieces.
  assert backward.num_products == 4
  for chain in of_tokens:
    assert chain.collectives[-1] == "stablehlo.reduce_scatter"
    assert chain.pieces == (2, 4, 8)
    # All rows of one device's tokens, gathered; and the same scattered.
    rows_bytes = tp.BATCH * tp.TOKENS * tp.WIDTH * 4
    assert chain.nccl_bytes == len(chain.collectives) * rows_bytes


@pytest.mark.parametrize("kind", _CONSTRAINED)
@pytest.mark.parametrize("dim", [0, 1])
def test_pieces_send_on_h100s_what_the_whole_does(
  kind: str,
  dim: int,
  scheduled: Callable[..., hlo.Module],
  h100s: Sequence[jax.Device],
):
  lowered = tp.lower(
    kind,
    tokens=4096,
    width=2048,
    hidden=8192,
    dtype=jnp.bfloat16,
    devices=h100s,
  )
  found = chains.find(_module(lowered))
  labels = [c.label for c in found if c.label.endswith(f":{dim}")]
  in_form, outcome = rewritten.lower_rewritten(
    lowered, Form(slices=dict.fromkeys(labels, 2))
  )
  assert len(outcome.actions) == len(labels) == 2
  # The partitioner drops the key that would keep XLA's combiners off.
  num_before, bytes_before = _sent(scheduled(lowered, **_UNCOMBINED))
  num_after, bytes_after = _sent(scheduled(in_form, **_UNCOMBINED))
  for of_kind in ("all-gather", "reduce-scatter"):
    assert num_after[of_kind] == 2 * num_before[of_kind] > 0
  assert bytes_after == bytes_before


def _users(operation: ir.Operation) -> list[ir.Operation]:
  return [use.owner.operation for use in operation.results[0].uses]


@pytest.mark.parametrize("kind", _CONSTRAINED)
def test_pieces_are_sharded_as_what_they_are_of_whichever_chain_made_it(
  kind: str,
):
  # Without loops a chain takes what the chains before it put together.
  lowered = tp.lower(kind, unrolled=True)
  labels = [c.label for c in chains.find(_module(lowered))]
  cut = [label for label in labels if label.endswith(":1")]
  in_form, outcome = rewritten.lower_rewritten(
    lowered, Form(slices=dict.fromkeys(cut, 2))
  )
  assert len(outcome.actions) == len(cut) > 2
  module = _module(in_form)
  # Devices' own tokens are cut; other slices are those of a layer's weights.
  pieces = [
    operation
    for operation in mlir.inner_operations(module.operation)
    if operation.name == "stablehlo.slice"
    and len(mlir.shape_of(operation.results[0]) or ()) == 5
  ]
  assert len(pieces) > 2 * len(cut)
  for piece in pieces:
    (reshaped,) = _users(piece)
    (constraint,) = _users(reshaped)
    assert constraint.name == "sdy.sharding_constraint"


def test_nothing_of_the_search_stays_in_the_program():
  lowered = tp.lower("split at entry")
  first, *_ = chains.find(_module(lowered))
  in_form, _ = rewritten.lower_rewritten(lowered, Form(slices={first.label: 2}))
  assert "lagom_" not in str(_module(in_form)).replace("lagom_chain", "")
