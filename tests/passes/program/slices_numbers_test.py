# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Chains of a program compute the same numbers in pieces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import hypothesis
from hypothesis import strategies as st
import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

from lagom_xla.passes.program.form import Form
import rewritten
import sliced_steps as steps


class TestNumbers:
  @pytest.mark.parametrize("num", [2, 4, 8])
  @pytest.mark.parametrize("layers", ["scanned", "unrolled", "remat"])
  def test_a_train_step_in_pieces_of_tokens_computes_the_same(
    self, layers: str, num: int
  ):
    lowered = steps.lower(layers)
    expected, actual = steps.run(lowered, steps.all_in(lowered, num, ":0"))
    (weights, (loss, out)), (cut_weights, (cut_loss, cut_out)) = (
      expected,
      actual,
    )
    # Forward, every number comes from the same operations on the same values.
    np.testing.assert_array_equal(cut_out, out)
    np.testing.assert_array_equal(cut_loss, loss)
    # A weight's gradient is a sum over tokens, in `num` parts now: any order of
    # float32 additions is within that many roundings of the sum of magnitudes,
    # which the largest entry stands for here.
    for cut, whole in zip(cut_weights, weights, strict=True):
      bound = steps.TOKENS * np.finfo(np.float32).eps * np.abs(whole).max()
      np.testing.assert_allclose(cut, whole, rtol=0, atol=bound)

  @pytest.mark.parametrize("dim", [":0", ":1"])
  def test_a_batch_of_sequences_is_cut_along_either(self, dim: str):
    lowered = steps.lower("scanned", batch=4)
    expected, actual = steps.run(lowered, steps.all_in(lowered, 2, dim))
    np.testing.assert_array_equal(actual[1][1], expected[1][1])
    for cut, whole in zip(actual[0], expected[0], strict=True):
      np.testing.assert_allclose(cut, whole, rtol=1e-4, atol=1e-4)

  def test_donated_weights_stay_donated(self):
    lowered = steps.lower("unrolled")
    compiled, _ = rewritten.compile_rewritten(lowered, steps.all_in(lowered, 2))
    memory: Any = compiled.memory_analysis()
    as_written: Any = lowered.compile().memory_analysis()
    assert memory.alias_size_in_bytes == as_written.alias_size_in_bytes > 0

  def test_experts_are_cut_between_their_all_to_alls(self):
    def experts(x: jax.Array, w: jax.Array) -> jax.Array:
      x = lax.all_to_all(x, "tp", split_axis=0, concat_axis=1, tiled=True)
      y = jnp.einsum("ecd,edf->ecf", x, w)
      return lax.all_to_all(
        jnp.tanh(y), "tp", split_axis=1, concat_axis=0, tiled=True
      )

    lowered = steps.local(
      experts, (P(None, "tp"), P("tp")), P(None, "tp"), (8, 64, 4), (8, 4, 6)
    )
    (chain, *_) = steps.found(lowered)
    assert Counter(chain.collectives) == {"stablehlo.all_to_all": 2}
    steps.same_bits(lowered, Form(slices={chain.label: 4}))

  def test_a_product_is_cut_with_the_all_reduce_behind_it(self):
    lowered = steps.local(
      lambda x, w: lax.psum(jnp.tanh(x) @ w, "tp"),
      (P(None, "tp"), P("tp")),
      P(),
      (16, 64),
      (64, 4),
    )
    (chain,) = steps.found(lowered)
    assert chain.collectives == ("stablehlo.all_reduce",)
    assert chain.nccl_bytes == 16 * 4 * 4
    steps.same_bits(lowered, Form(slices={chain.label: 8}))


def _in_heads(x: jax.Array) -> jax.Array:
  heads = x.reshape(*x.shape[:2], 2, -1).swapaxes(1, 2)
  return jnp.exp(heads).swapaxes(1, 2).reshape(x.shape)


# Operations that some dimensions are free in, on (parts, tokens, width).
_OPERATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
  "elementwise": lambda x: jnp.tanh(x) * 0.5 + x,
  "scaled by rows": lambda x: x / (1 + jnp.sum(x * x, -1, keepdims=True)),
  "scaled by tokens": lambda x: x - jnp.max(x, -2, keepdims=True),
  "transposed": lambda x: jnp.swapaxes(x, 0, 1),
  "flattened": lambda x: x.reshape(1, -1, x.shape[-1]),
  "in heads": _in_heads,
  "joined": lambda x: jnp.concatenate([x[..., 1:], x[..., :1]], -1),
  "rolled": lambda x: jnp.roll(x, 1, axis=1),
  "padded": lambda x: jnp.pad(x, ((0, 0), (0, 0), (1, 0)))[..., :-1],
  "selected": lambda x: jnp.where(x > 0, x, jnp.flip(x, -1)),
  "positions": lambda x: x + jnp.arange(x.shape[1], dtype=x.dtype)[:, None],
  "sorted": lambda x: jnp.sort(x, axis=-1),
  "product": lambda x: x @ jnp.ones((x.shape[-1], x.shape[-1]), x.dtype),
  "written": lambda x: lax.dynamic_update_slice(x, x[..., :2], (0, 0, 1)),
}  # fmt: skip


def _coarse(x: jax.Array) -> jax.Array:
  """Numbers of so few bits that their sums are exact in any order.

  XLA's CPU compiler adds up products of other shapes in another order: the
  pieces and the whole have the same bits on JAX 0.10.2 whatever the numbers
  are, and on 0.12 if no sum is rounded.
  """
  return jnp.round(jnp.clip(x, -4, 4) * 16) / 16


@hypothesis.settings(max_examples=8, derandomize=True)
@hypothesis.given(
  before=st.lists(st.sampled_from(sorted(_OPERATIONS)), max_size=4),
  after=st.lists(st.sampled_from(sorted(_OPERATIONS)), max_size=4),
  num=st.sampled_from([2, 4]),
)
def test_any_chain_of_operations_gives_the_same_bits_in_pieces(
  before: list[str], after: list[str], num: int
):
  def local(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    x = _coarse(steps.gather(x, 1))
    for name in before:
      x = _coarse(_OPERATIONS[name](x))
    saved = x
    x = _coarse(x @ _coarse(w))
    for name in after:
      x = _coarse(_OPERATIONS[name](x))
    return saved, steps.scatter(x.reshape(4, 64, 8), 1)

  lowered = steps.local(
    local, (P(None, "tp"), P()), (P(), P(None, "tp")), (4, 64, 8), (8, 8)
  )
  for chain in steps.found(lowered):
    if num in chain.pieces:
      steps.same_bits(lowered, Form(slices={chain.label: num}))
