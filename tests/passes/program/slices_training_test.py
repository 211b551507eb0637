# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training in pieces: ten steps with slices compute what they do without.

Tensor and sequence parallelism over eight CPU devices, with the state donated.
"""

from __future__ import annotations

from collections import Counter
import re
from typing import Any

import jax
import numpy as np
import pytest

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


def _sent(compiled: jax.stages.Compiled) -> tuple[Counter[str], int]:
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
@pytest.mark.parametrize("kind", tp.KINDS)
def test_ten_steps_in_pieces_train_the_same_and_send_no_more(
  kind: str, unrolled: bool
):
  lowered = tp.lower(kind, unrolled=unrolled)
  as_written = lowered.compile()
  weights, losses = _train(as_written)
  assert losses[-1] < 0.9 * losses[0]
  num_before, elements_before = _sent(as_written)
  # Pieces of tokens, and of the batch.
  for dim, num in ((1, 2), (1, 4), *([] if unrolled else [(0, 2)])):
    form = _form(lowered, dim, num)
    compiled, outcome = rewritten.compile_rewritten(lowered, form)
    assert len(outcome.actions) == len(form.slices) > 1

    num_after, elements_after = _sent(compiled)
    assert set(num_after) == set(num_before)
    assert num_after["all-gather"] > num_before["all-gather"]
    assert elements_after <= elements_before

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
