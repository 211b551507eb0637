# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Chains of a program are found, and are cut or refused by name.

In pieces they compute the same numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis
from hypothesis import strategies as st
import jax
from jax import lax
from jax.interpreters import mlir
import jax.numpy as jnp
from jax.sharding import AxisType
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxlib.mlir import ir
import numpy as np
import pytest

from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap
from lagom_xla.passes.program import mlir as mlir_lib
from lagom_xla.passes.program import rewrite
from lagom_xla.passes.program.form import Form
from lagom_xla.passes.program.slices import chains
import rewritten

_WIDTH = 16
_HIDDEN = 32
_TOKENS = 64
_LAYERS = 2

_Local = Callable[..., Any]


def _mesh(devices: Sequence[jax.Device] | None = None) -> Mesh:
  devices = jax.devices()[:8] if devices is None else devices
  return Mesh(np.array(devices), ("tp",), axis_types=(AxisType.Auto,))


def _gather(x: jax.Array, dim: int) -> jax.Array:
  return lax.all_gather(x, "tp", axis=dim, tiled=True)


def _scatter(x: jax.Array, dim: int) -> jax.Array:
  return lax.psum_scatter(x, "tp", scatter_dimension=dim, tiled=True)


def _perceptron(x: jax.Array, weights: tuple[jax.Array, jax.Array]):
  """A layer of tensor and sequence parallelism; tokens are dimension -2."""
  up, down = weights
  hidden = jax.nn.silu(_gather(jnp.tanh(x), x.ndim - 2) @ up)
  return x + _scatter(hidden @ down, x.ndim - 2), None


def _stack(layers: str) -> _Local:
  layer = jax.checkpoint(_perceptron) if layers == "remat" else _perceptron

  def _run(x: jax.Array, ups: jax.Array, downs: jax.Array) -> jax.Array:
    if layers == "unrolled":
      for up, down in zip(ups, downs, strict=True):
        x, _ = layer(x, (up, down))
      return x
    return lax.scan(layer, x, (ups, downs))[0]

  return _run


def _step(_local: _Local, x_spec: P, mesh: Mesh) -> _Local:
  specs = (x_spec, P(None, None, "tp"), P(None, "tp", None))
  forward = jax.shard_map(
    _local, mesh=mesh, in_specs=specs, out_specs=x_spec, check_vma=False
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


def _lower(
  layers: str,
  *,
  batch: int | None = None,
  sizes: tuple[int, int, int] = (_TOKENS, _WIDTH, _HIDDEN),
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


def _module(lowered: jax.stages.Lowered) -> ir.Module:
  stablehlo: Any = lowered.compiler_ir("stablehlo")
  return stablehlo


def _local(
  function: _Local, in_specs: Any, out_specs: Any, *shapes: tuple[int, ...]
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


def _found(lowered: jax.stages.Lowered) -> tuple[chains.Chain, ...]:
  return chains.find(_module(lowered))


def _all_in(lowered: jax.stages.Lowered, num: int, dim: str = "") -> Form:
  """A form with all chains, or all along `dim`, in so many pieces."""
  labels = [c.label for c in _found(lowered) if c.label.endswith(dim)]
  return Form(slices=dict.fromkeys(labels, num))


def _run(lowered: jax.stages.Lowered, form: Form) -> tuple[Any, Any]:
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


def _same_bits(lowered: jax.stages.Lowered, form: Form) -> None:
  expected, actual = _run(lowered, form)
  jax.tree.map(np.testing.assert_array_equal, actual, expected)


def _attention(x: jax.Array, w: jax.Array) -> jax.Array:
  q = _gather(x, 1) @ w
  scores = jax.nn.softmax(q @ q.transpose(0, 2, 1), axis=-1)
  return _scatter(scores @ q, 1)


class TestFinding:
  def test_a_layer_has_a_chain_forward_and_a_chain_backward(self):
    forward, backward = _found(_lower("scanned"))
    for chain in (forward, backward):
      assert chain.collectives == (
        "stablehlo.all_gather",
        "stablehlo.reduce_scatter",
      )
      assert chain.nccl_bytes == 2 * _TOKENS * _WIDTH * 4
      assert chain.pieces == (2, 4, 8)
    # Backward there are the gradients of both weights, too.
    assert (forward.num_products, backward.num_products) == (2, 4)

  def test_finding_leaves_the_program_and_finds_the_same_again(self):
    lowered = _lower("scanned", batch=4)
    before = str(_module(lowered))
    labels = [chain.label for chain in _found(lowered)]
    assert str(_module(lowered)) == before
    assert len(set(labels)) == len(labels)
    assert [c.label for c in _found(_lower("scanned", batch=4))] == labels

  def test_attention_ends_a_chain_of_tokens_but_not_one_of_the_batch(self):
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

  def test_no_piece_of_a_chain_waits_for_another(self):
    def residual(x: jax.Array, w: jax.Array) -> jax.Array:
      gathered = _gather(x, 0)
      whole = lax.cumsum(gathered @ w)  # Needs all tokens before it.
      return _scatter((gathered + whole) @ w, 0)

    lowered = _local(residual, (P("tp"), P()), P("tp"), (64, 4), (4, 4))
    ends = [chain.collectives for chain in _found(lowered)]
    assert ("stablehlo.all_gather", "stablehlo.reduce_scatter") not in ends

  def test_an_odd_number_of_tokens_has_no_pieces(self):
    lowered = _lower("scanned", sizes=(8 * 3, _WIDTH, _HIDDEN))
    assert not [c for c in _found(lowered) if c.label.endswith(":0")]


def _num_of(module: hlo.Module) -> Counter[str]:
  """Collectives by kind, and products, that a step runs."""
  num: Counter[str] = Counter()
  for collective in collectives.find(module):
    num[collective.kind] += collective.executions
  for kernel in overlap.analyze(module).kernels.values():
    num[kernel.category] += kernel.executions
  return num


def test_xla_joins_neither_collectives_nor_products_again(
  scheduled: Callable[..., hlo.Module], h100s: Sequence[jax.Device]
):
  # All far below the sizes up to which its combiners and dot merger act.
  lowered = _lower(
    "unrolled", sizes=(2048, 256, 1024), dtype=jnp.bfloat16, devices=h100s
  )
  form = _all_in(lowered, 4)
  in_form, _ = rewritten.lower_rewritten(lowered, form)
  as_written, cut = scheduled(lowered), scheduled(in_form)

  before, after = _num_of(as_written), _num_of(cut)
  for kind in ("all-gather", "reduce-scatter", "gemm"):
    assert after[kind] == 4 * before[kind] > 0
  chain_of = {
    instruction.frontend_attributes.map.get(chains.CHAIN)
    for computation in cut.computations.values()
    for instruction in computation.instructions
    if collectives.kind_of(instruction) in ("all-gather", "reduce-scatter")
  }
  assert chain_of == set(form.slices)


def test_tags_tell_of_scheduled_collectives_which_chains_they_are_in(
  scheduled: Callable[..., hlo.Module], h100s: Sequence[jax.Device]
):
  lowered = _lower("scanned", devices=h100s)
  module = _module(lowered)
  labels = {chain.label for chain in chains.find(module)}
  chains.tag(module)
  tags = {
    tag
    for computation in scheduled(lowered).computations.values()
    for instruction in computation.instructions
    for tag in _chains_of(instruction)
  }
  assert tags - {""} == labels


def _chains_of(instruction: hlo.Instruction) -> list[str]:
  tag = instruction.frontend_attributes.map.get(chains.CHAIN, "")
  return tag.split(",")


class TestRefusals:
  @pytest.mark.parametrize(
    ("asked", "reason"),
    [
      ({"all_gather.9:0": 2}, "is not in this program"),
      ({"all_gather.0-reduce_scatter.0:0": 3}, "1, 2, 4, 8 pieces, not 3"),
    ],
  )
  def test_what_cannot_be_leaves_the_program_as_it_was(
    self, asked: dict[str, int], reason: str
  ):
    module = _module(_lower("unrolled"))
    before = str(module)
    same, outcome = rewrite.rewrite(module, Form(slices=asked))
    assert same is module and str(module) == before
    assert not outcome.actions
    (refusal,) = outcome.refusals
    assert reason in refusal.reason

  def test_a_collective_is_cut_along_one_dimension_only(self):
    module = _module(_lower("unrolled", batch=4))
    first = "all_gather.0-reduce_scatter.0"
    _, outcome = rewrite.rewrite(
      module, Form(slices={f"{first}:0": 2, f"{first}:1": 2})
    )
    assert len(outcome.actions) == 1
    (refusal,) = outcome.refusals
    assert f"shares operations with {first}:0" in refusal.reason

  def test_one_piece_is_the_program_as_written(self):
    module = _module(_lower("unrolled"))
    before = str(module)
    form = Form(slices={"all_gather.0-reduce_scatter.0:0": 1})
    same, outcome = rewrite.rewrite(module, form)
    assert same is module and str(module) == before
    assert not (outcome.actions or outcome.refusals)


@pytest.mark.parametrize(
  ("type_", "num_bytes"),
  [
    ("tensor<3x5xbf16>", 30),
    ("tensor<3x5xcomplex<f32>>", 120),
    ("tensor<3x5xi1>", 15),
    ("tensor<3x5xi4>", 8),
    ("tensor<f8E4M3FN>", 1),
    ("tensor<?xf32>", 0),
  ],
)
def test_a_tensor_is_as_large_as_xla_stores_it(
  type_: str, num_bytes: int
) -> None:
  text = f"func.func @f(%x: {type_}) {{ return }}"
  with mlir.make_ir_context():
    module = ir.Module.parse(text)
    (function,) = module.body.operations
    ((block,),) = function.regions
    (value,) = block.arguments
    assert mlir_lib.num_bytes(value) == num_bytes


class TestNumbers:
  @pytest.mark.parametrize("num", [2, 4, 8])
  @pytest.mark.parametrize("layers", ["scanned", "unrolled", "remat"])
  def test_a_train_step_in_pieces_of_tokens_computes_the_same(
    self, layers: str, num: int
  ):
    lowered = _lower(layers)
    expected, actual = _run(lowered, _all_in(lowered, num, ":0"))
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
      bound = _TOKENS * np.finfo(np.float32).eps * np.abs(whole).max()
      np.testing.assert_allclose(cut, whole, rtol=0, atol=bound)

  @pytest.mark.parametrize("dim", [":0", ":1"])
  def test_a_batch_of_sequences_is_cut_along_either(self, dim: str):
    lowered = _lower("scanned", batch=4)
    expected, actual = _run(lowered, _all_in(lowered, 2, dim))
    np.testing.assert_array_equal(actual[1][1], expected[1][1])
    for cut, whole in zip(actual[0], expected[0], strict=True):
      np.testing.assert_allclose(cut, whole, rtol=1e-4, atol=1e-4)

  def test_donated_weights_stay_donated(self):
    lowered = _lower("unrolled")
    compiled, _ = rewritten.compile_rewritten(lowered, _all_in(lowered, 2))
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

    lowered = _local(
      experts, (P(None, "tp"), P("tp")), P(None, "tp"), (8, 64, 4), (8, 4, 6)
    )
    (chain, *_) = _found(lowered)
    assert Counter(chain.collectives) == {"stablehlo.all_to_all": 2}
    _same_bits(lowered, Form(slices={chain.label: 4}))

  def test_a_product_is_cut_with_the_all_reduce_behind_it(self):
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
