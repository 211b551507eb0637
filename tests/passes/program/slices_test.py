# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Chains of a program are found, and are cut or refused by name.

Pieces compute the same numbers, and so do training steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import hypothesis
from hypothesis import strategies as st
import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxlib.mlir import ir
import numpy as np
import pytest

from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap
from lagom_xla.passes.program import rewrite
from lagom_xla.passes.program.form import Form
from lagom_xla.passes.program.slices import chains
import rewritten
import tensor_parallel_step as tp

_mesh = Mesh(np.array(jax.devices()[:8]), ("tp",))
_FIRST = "all_gather.0-reduce_scatter.0"

_Local = Callable[..., Any]


def _gather(x: jax.Array, dim: int) -> jax.Array:
  return lax.all_gather(x, "tp", axis=dim, tiled=True)


def _scatter(x: jax.Array, dim: int) -> jax.Array:
  return lax.psum_scatter(x, "tp", scatter_dimension=dim, tiled=True)


def _module(lowered: jax.stages.Lowered) -> ir.Module:
  stablehlo: Any = lowered.compiler_ir("stablehlo")
  return stablehlo


def _local(
  function: _Local, in_specs: Any, out_specs: Any, *shapes: tuple[int, ...]
) -> jax.stages.Lowered:
  """Lowers a function of each device's part of arrays of these shapes."""
  mapped = jax.shard_map(
    function,
    mesh=_mesh,
    in_specs=in_specs,
    out_specs=out_specs,
    check_vma=False,
  )
  args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
  return jax.jit(mapped).lower(*args)


def _found(lowered: jax.stages.Lowered) -> tuple[chains.Chain, ...]:
  return chains.find(_module(lowered))


def _along(lowered: jax.stages.Lowered, dim: int) -> list[chains.Chain]:
  return [c for c in _found(lowered) if c.label.endswith(f":{dim}")]


def _same_bits(
  lowered: jax.stages.Lowered, form: Form, *, rounded: float = 0
) -> None:
  """Runs a step as written and in a form that acts in every place.

  Results may differ by `rounded` times an array's largest number.
  """
  compiled, outcome = rewritten.compile_rewritten(lowered, form)
  assert len(outcome.actions) == len(form.slices) > 0
  assert not outcome.refusals
  random = np.random.default_rng(0)
  args = [
    random.normal(size=info.shape).astype(info.dtype)
    for info in lowered.args_info[0]
  ]
  results = []
  for executable in (compiled, lowered.compile()):
    placed = jax.device_put(args, list(executable.input_shardings[0]))
    results.append(jax.tree.leaves(executable(*placed)))
  for actual, expected in zip(*map(list, results), strict=True):
    atol = rounded * np.max(np.abs(expected))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


def _attention(x: jax.Array, w: jax.Array) -> jax.Array:
  q = _gather(x, 1) @ w
  scores = jax.nn.softmax(q @ q.transpose(0, 2, 1), axis=-1)
  return _scatter(scores @ q, 1)


class TestFinding:
  def test_attention_ends_a_chain_along_tokens_but_not_along_the_batch(self):
    lowered = _local(
      _attention, (P(None, "tp"), P()), P(None, "tp"), (4, 64, 8), (8, 8)
    )
    by_label = {chain.label: chain for chain in _found(lowered)}
    of_batch = by_label["all_gather.0-reduce_scatter.0:0"]
    assert of_batch.num_products == 3
    of_tokens = by_label["all_gather.0:1"]
    assert of_tokens.num_products == 1
    for chain in (of_batch, of_tokens):
      _same_bits(lowered, Form(slices={chain.label: 2}))

  def test_operations_that_mix_tokens_are_not_in_a_chain(self):
    def residual(x: jax.Array, w: jax.Array) -> jax.Array:
      gathered = _gather(x, 0)
      whole = lax.cumsum(gathered @ w)  # Needs all tokens before it.
      return _scatter((gathered + whole) @ w, 0)

    lowered = _local(residual, (P("tp"), P()), P("tp"), (64, 4), (4, 4))
    ends = [chain.collectives for chain in _found(lowered)]
    assert ("stablehlo.all_gather", "stablehlo.reduce_scatter") not in ends

  def test_an_odd_number_of_tokens_per_device_is_not_cut(self):
    assert not _along(tp.lower("shard_map", tokens=8 * 3), 1)


def _traffic(module: hlo.Module) -> tuple[Counter[str], Counter[str]]:
  """Executions of collectives by kind, and bytes as NCCL counts them."""
  num: Counter[str] = Counter()
  num_bytes: Counter[str] = Counter()
  for collective in collectives.find(module):
    num[collective.kind] += collective.executions
    num_bytes[collective.kind] += collective.executions * collective.nccl_bytes
  return num, num_bytes


def _num_products(module: hlo.Module) -> int:
  kernels = overlap.analyze(module).kernels.values()
  return sum(k.executions for k in kernels if k.category == "gemm")


def _tags(module: hlo.Module) -> set[str]:
  """The chains in the tags of a module's gathers and scatters."""
  return {
    tag
    for computation in module.computations.values()
    for instruction in computation.instructions
    if collectives.kind_of(instruction) in ("all-gather", "reduce-scatter")
    for tag in instruction.frontend_attributes.map[chains.CHAIN].split(",")
  }


def test_xla_does_not_recombine_collectives_or_products_of_pieces(
  scheduled, h100s
):
  # All sizes are far below the limits of XLA's combiners and dot merger.
  lowered = tp.lower(
    "shard_map",
    unrolled=True,
    tokens=512,
    width=256,
    hidden=1024,
    dtype=jnp.bfloat16,
    devices=h100s,
  )
  form = _form(lowered, 1, 4)
  in_form, _ = rewritten.lower_rewritten(lowered, form)
  as_written, cut = scheduled(lowered), scheduled(in_form)

  (before, _), (after, _) = _traffic(as_written), _traffic(cut)
  for kind in ("all-gather", "reduce-scatter"):
    assert after[kind] == 4 * before[kind] > 0
  assert _num_products(cut) == 4 * _num_products(as_written) > 0
  assert _tags(cut) == set(form.slices)


def test_tags_name_the_chains_of_scheduled_collectives(scheduled, h100s):
  lowered = tp.lower("shard_map", devices=h100s)
  module = _module(lowered)
  labels = {chain.label for chain in chains.find(module)}
  chains.tag(module)
  assert _tags(scheduled(lowered)) - {""} == labels


@pytest.mark.parametrize(
  ("asked", "reason"),
  [
    ({"all_gather.9:0": 2}, "is not in this program"),
    ({f"{_FIRST}:1": 3}, "1, 2, 4, 8 pieces, not 3"),
    ({f"{_FIRST}:1": 1}, None),  # One piece is the program as written.
  ],
)
def test_an_impossible_cut_leaves_the_program_unchanged(asked, reason):
  module = _module(tp.lower("shard_map", unrolled=True))
  before = str(module)
  same, outcome = rewrite.rewrite(module, Form(slices=asked))
  assert same is module and str(module) == before
  assert not outcome.actions
  reasons = [refusal.reason for refusal in outcome.refusals]
  assert len(reasons) == (reason is not None)
  assert reason is None or reason in reasons[0]


def test_a_collective_is_cut_along_only_one_dimension():
  module = _module(tp.lower("shard_map", unrolled=True))
  asked = {f"{_FIRST}:0": 2, f"{_FIRST}:1": 2}
  _, outcome = rewrite.rewrite(module, Form(slices=asked))
  assert not outcome.actions
  (refusal,) = outcome.refusals
  assert f"shares operations with {_FIRST}:0" in refusal.reason


class TestNumbers:
  def test_experts_are_cut_together_with_their_all_to_alls(self):
    def experts(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
      rows = x.reshape(8, -1, x.shape[-1])
      sent = lax.all_to_all(rows, "tp", 0, 0, tiled=True)
      done = jnp.tanh(sent @ up[0]) @ down[0]
      back = lax.all_to_all(done, "tp", 0, 0, tiled=True)
      return jnp.sum(jnp.square(back))

    specs = (P("tp"),) * 3
    gradients = jax.value_and_grad(experts, (0, 1, 2))
    lowered = _local(
      lambda *args: jax.tree.leaves(gradients(*args)),
      specs,
      [P(), *specs],
      (512, 4),
      (8, 4, 6),
      (8, 6, 4),
    )
    forward, backward = _found(lowered)
    for chain in (forward, backward):
      assert Counter(chain.collectives) == {"stablehlo.all_to_all": 2}
    # Each product has two gradients; gradients of weights are sums over the
    # pieces.
    assert (forward.num_products, backward.num_products) == (2, 4)
    _same_bits(lowered, Form(slices={forward.label: 4}))
    _same_bits(lowered, Form(slices={backward.label: 2}), rounded=1e-6)

  def test_a_product_is_cut_together_with_its_all_reduce(self):
    lowered = _local(
      lambda x, w: lax.psum(jnp.tanh(x) @ w, "tp"),
      (P(None, "tp"), P("tp")),
      P(),
      (16, 64),
      (64, 4),
    )
    (chain,) = _found(lowered)
    assert chain.collectives == ("stablehlo.all_reduce",)
    assert chain.nccl_bytes == 16 * 4 * 4
    _same_bits(lowered, Form(slices={chain.label: 8}))


def _in_heads(x: jax.Array) -> jax.Array:
  heads = x.reshape(*x.shape[:2], 2, -1).swapaxes(1, 2)
  return jnp.exp(heads).swapaxes(1, 2).reshape(x.shape)


# Operations on (parts, tokens, width) that are independent along some of these.
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
  """Numbers with so few bits that their sums are exact in any order.

  XLA's CPU compiler sums products of other shapes in another order. The pieces
  and the whole have the same bits on JAX 0.10.2 for all numbers, and on 0.12 if
  no sum is rounded.
  """
  return jnp.round(jnp.clip(x, -4, 4) * 16) / 16


@hypothesis.settings(max_examples=5, derandomize=True)
@hypothesis.given(
  before=st.lists(st.sampled_from(sorted(_OPERATIONS)), max_size=4),
  after=st.lists(st.sampled_from(sorted(_OPERATIONS)), max_size=4),
  num=st.sampled_from([2, 4]),
)
def test_any_chain_of_operations_computes_the_same_bits_in_pieces(
  before, after, num
):
  def local(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    x = _coarse(_gather(x, 1))
    for name in before:
      x = _coarse(_OPERATIONS[name](x))
    saved = x
    x = _coarse(x @ _coarse(w))
    for name in after:
      x = _coarse(_OPERATIONS[name](x))
    return saved, _scatter(x.reshape(4, 64, 8), 1)

  lowered = _local(
    local, (P(None, "tp"), P()), (P(), P(None, "tp")), (4, 64, 8), (8, 8)
  )
  for chain in _found(lowered):
    if num in chain.pieces:
      _same_bits(lowered, Form(slices={chain.label: num}))


_STEPS = 10


def _form(lowered: jax.stages.Lowered, dim: int, num: int) -> Form:
  found = _along(lowered, dim)
  assert all(num in chain.pieces for chain in found)
  return Form(slices={chain.label: num for chain in found})


def _train(compiled: jax.stages.Compiled) -> tuple[Any, np.ndarray]:
  """The weights and all losses of some steps from a fixed start."""
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
def test_ten_steps_in_pieces_train_to_the_same_weights_and_losses(kind, layers):
  unrolled = layers == "unrolled"
  lowered = tp.lower(kind, unrolled=unrolled, remat=layers == "remat")
  weights, losses = _train(lowered.compile())
  assert losses[-1] < 0.9 * losses[0]
  # Pieces along tokens, and along the batch.
  for dim, num in ((1, 8), *([] if unrolled else [(0, 2)])):
    form = _form(lowered, dim, num)
    compiled, outcome = rewritten.compile_rewritten(lowered, form)
    assert len(outcome.actions) == len(form.slices) > 1
    cut_weights, cut_losses = _train(compiled)
    # The forward pass does the same operations on the same values.
    assert cut_losses[0] == losses[0]
    # A weight's gradient is a sum over all tokens, in `num` parts. Any order of
    # float32 additions differs by at most that many roundings of the sum of
    # magnitudes, here the largest weight, in each step.
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


@pytest.mark.parametrize("kind", tp.KINDS)
def test_a_layer_has_a_forward_chain_and_a_backward_chain(kind):
  module = _module(tp.lower(kind))
  before = str(module)
  found = chains.find(module)
  assert str(module) == before  # The search does not change the module.
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
    # A gather or a scatter moves all rows of one device's tokens.
    rows_bytes = tp.BATCH * tp.TOKENS * tp.WIDTH * 4
    assert chain.nccl_bytes == len(chain.collectives) * rows_bytes


@pytest.mark.parametrize(
  ("kind", "dim"),
  [("whole at entry", 0), ("whole at entry", 1), ("split at entry", 1)],
)
def test_pieces_on_h100s_communicate_as_many_bytes_as_the_whole(
  kind, dim, scheduled, h100s
):
  lowered = tp.lower(
    kind,
    tokens=4096,
    width=2048,
    hidden=8192,
    dtype=jnp.bfloat16,
    devices=h100s,
  )
  in_form, outcome = rewritten.lower_rewritten(lowered, _form(lowered, dim, 2))
  assert len(outcome.actions) == 2
  # The partitioner drops the key that prevents combining.
  num_before, bytes_before = _traffic(scheduled(lowered, **_UNCOMBINED))
  num_after, bytes_after = _traffic(scheduled(in_form, **_UNCOMBINED))
  for of_kind in ("all-gather", "reduce-scatter"):
    assert num_after[of_kind] == 2 * num_before[of_kind] > 0
  assert bytes_after == bytes_before


def test_a_rewritten_program_has_no_internal_attributes_but_chain_tags():
  lowered = tp.lower("split at entry")
  first, *_ = chains.find(_module(lowered))
  in_form, _ = rewritten.lower_rewritten(lowered, Form(slices={first.label: 2}))
  assert "lagom_" not in str(_module(in_form)).replace("lagom_chain", "")
