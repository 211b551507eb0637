# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training in pieces: ten steps with slices compute what they do without.

Tensor and sequence parallelism over eight CPU devices, with the state donated.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
from jaxlib.mlir import ir
import numpy as np
import pytest

from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes.program.form import Form
from lagom_xla.passes.program.slices import chains
import rewritten
import tensor_parallel_step as tp

_STEPS = 10


def _form(lowered: jax.stages.Lowered, dim: int, num: int) -> Form:
  module: Any = lowered.compiler_ir("stablehlo")
  found = [c for c in chains.find(module) if c.label.endswith(f":{dim}")]
  assert all(num in chain.pieces for chain in found)
  return Form(slices={chain.label: num for chain in found})


def _train(compiled: jax.stages.Compiled) -> tuple[Any, np.ndarray]:
  """The weights and all losses of some steps from the same start."""
  random = np.random.default_rng(0)
  args = jax.tree.map(
    lambda info, sharding: jax.device_put(
      (random.normal(size=info.shape) / 4).astype(info.dtype), sharding
    ),
    compiled.args_info[0],
    compiled.input_shardings[0],
  )
  state, data = args[0], args[1:]
  losses = []
  for _ in range(_STEPS):
    before = state
    state, loss = compiled(state, *data)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before))
    losses.append(np.asarray(loss))
  return jax.tree.map(np.asarray, state), np.stack(losses)


@pytest.mark.parametrize(
  ("kind", "layers"),
  [
    ("shard_map", "remat"),
    ("whole at entry", "scanned"),
    ("split at entry", "unrolled"),
  ],
)
def test_ten_steps_in_pieces_train_the_same(kind, layers):
  unrolled = layers == "unrolled"
  lowered = tp.lower(kind, unrolled=unrolled, remat=layers == "remat")
  weights, losses = _train(lowered.compile())
  assert losses[-1] < 0.9 * losses[0]
  # Pieces of tokens, and of the batch.
  for dim, num in ((1, 8), *([] if unrolled else [(0, 2)])):
    form = _form(lowered, dim, num)
    compiled, outcome = rewritten.compile_rewritten(lowered, form)
    assert len(outcome.actions) == len(form.slices) > 1
    cut_weights, cut_losses = _train(compiled)
    # Forward, every number comes from the same operations on the same values.
    assert cut_losses[0] == losses[0]
    # A weight's gradient is a sum over all tokens, in `num` parts: any order of
    # float32 additions is within that many roundings of the sum of magnitudes.
    # The largest weight stands for it, and there are as many as steps.
    eps = float(np.finfo(np.float32).eps)
    roundings = _STEPS * tp.BATCH * tp.TOKENS * eps
    for name, whole in weights.items():
      bound = roundings * np.abs(whole).max()
      np.testing.assert_allclose(cut_weights[name], whole, rtol=0, atol=bound)
    np.testing.assert_allclose(cut_losses, losses, rtol=roundings)


_UNCOMBINED = {
  f"xla_gpu_{kind}_combine_threshold_bytes": 1
  for kind in ("all_gather", "reduce_scatter")
}


def _module(lowered: jax.stages.Lowered) -> ir.Module:
  module: Any = lowered.compiler_ir("stablehlo")
  return module


def _traffic(
  module: hlo.Module,
) -> tuple[Counter[str], Counter[str]]:
  """How often collectives of each kind run, and the bytes that NCCL counts."""
  num: Counter[str] = Counter()
  num_bytes: Counter[str] = Counter()
  for collective in collectives.find(module):
    num[collective.kind] += collective.executions
    num_bytes[collective.kind] += collective.executions * collective.nccl_bytes
  return num, num_bytes


@pytest.mark.parametrize("kind", tp.KINDS)
def test_a_layer_has_a_chain_forward_and_a_chain_backward(kind):
  module = _module(tp.lower(kind))
  before = str(module)
  found = chains.find(module)
  assert str(module) == before  # It stays as it was.
  assert len({chain.label for chain in found}) == len(found)
  assert chains.find(_module(tp.lower(kind))) == found
  of_tokens = [c for c in found if c.label.endswith(":1")]
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


@pytest.mark.parametrize(
  ("kind", "dim"),
  [("whole at entry", 0), ("whole at entry", 1), ("split at entry", 1)],
)
def test_pieces_send_on_h100s_what_the_whole_does(kind, dim, scheduled, h100s):
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
  num_before, bytes_before = _traffic(scheduled(lowered, **_UNCOMBINED))
  num_after, bytes_after = _traffic(scheduled(in_form, **_UNCOMBINED))
  for of_kind in ("all-gather", "reduce-scatter"):
    assert num_after[of_kind] == 2 * num_before[of_kind] > 0
  assert bytes_after == bytes_before


def test_nothing_of_the_search_stays_in_the_program():
  lowered = tp.lower("split at entry")
  first, *_ = chains.find(_module(lowered))
  in_form, _ = rewritten.lower_rewritten(lowered, Form(slices={first.label: 2}))
  assert "lagom_" not in str(_module(in_form)).replace("lagom_chain", "")
