# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Chains of a program are found, and are cut or refused by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import jax
from jax import lax
from jax.interpreters import mlir
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxlib.mlir import ir
import pytest

from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap
from lagom_xla.passes.program import mlir as mlir_lib
from lagom_xla.passes.program import rewrite
from lagom_xla.passes.program.form import Form
from lagom_xla.passes.program.slices import chains
import rewritten
import sliced_steps as steps


def _attention(x: jax.Array, w: jax.Array) -> jax.Array:
  q = steps.gather(x, 1) @ w
  scores = jax.nn.softmax(q @ q.transpose(0, 2, 1), axis=-1)
  return steps.scatter(scores @ q, 1)


class TestFinding:
  def test_a_layer_has_a_chain_forward_and_a_chain_backward(self):
    forward, backward = steps.found(steps.lower("scanned"))
    for chain in (forward, backward):
      assert chain.collectives == (
        "stablehlo.all_gather",
        "stablehlo.reduce_scatter",
      )
      assert chain.nccl_bytes == 2 * steps.TOKENS * steps.WIDTH * 4
      assert chain.pieces == (2, 4, 8)
    # Backward there are the gradients of both weights, too.
    assert (forward.num_products, backward.num_products) == (2, 4)

  def test_finding_leaves_the_program_and_finds_the_same_again(self):
    lowered = steps.lower("scanned", batch=4)
    before = str(steps.module(lowered))
    labels = [chain.label for chain in steps.found(lowered)]
    assert str(steps.module(lowered)) == before
    assert len(set(labels)) == len(labels)
    assert [
      c.label for c in steps.found(steps.lower("scanned", batch=4))
    ] == labels

  def test_attention_ends_a_chain_of_tokens_but_not_one_of_the_batch(self):
    lowered = steps.local(
      _attention, (P(None, "tp"), P()), P(None, "tp"), (4, 64, 8), (8, 8)
    )
    by_label = {chain.label: chain for chain in steps.found(lowered)}
    of_batch = by_label["all_gather.0-reduce_scatter.0:0"]
    assert of_batch.num_products == 3
    of_tokens = by_label["all_gather.0:1"]
    assert of_tokens.num_products == 1
    for chain in (of_batch, of_tokens):
      steps.same_bits(lowered, Form(slices={chain.label: 2}))

  def test_no_piece_of_a_chain_waits_for_another(self):
    def residual(x: jax.Array, w: jax.Array) -> jax.Array:
      gathered = steps.gather(x, 0)
      whole = lax.cumsum(gathered @ w)  # Needs all tokens before it.
      return steps.scatter((gathered + whole) @ w, 0)

    lowered = steps.local(residual, (P("tp"), P()), P("tp"), (64, 4), (4, 4))
    ends = [chain.collectives for chain in steps.found(lowered)]
    assert ("stablehlo.all_gather", "stablehlo.reduce_scatter") not in ends

  def test_an_odd_number_of_tokens_has_no_pieces(self):
    lowered = steps.lower("scanned", sizes=(8 * 3, steps.WIDTH, steps.HIDDEN))
    assert not [c for c in steps.found(lowered) if c.label.endswith(":0")]


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
  lowered = steps.lower(
    "unrolled", sizes=(2048, 256, 1024), dtype=jnp.bfloat16, devices=h100s
  )
  form = steps.all_in(lowered, 4)
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
  lowered = steps.lower("scanned", devices=h100s)
  module = steps.module(lowered)
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
    module = steps.module(steps.lower("unrolled"))
    before = str(module)
    same, outcome = rewrite.rewrite(module, Form(slices=asked))
    assert same is module and str(module) == before
    assert not outcome.actions
    (refusal,) = outcome.refusals
    assert reason in refusal.reason

  def test_a_collective_is_cut_along_one_dimension_only(self):
    module = steps.module(steps.lower("unrolled", batch=4))
    first = "all_gather.0-reduce_scatter.0"
    _, outcome = rewrite.rewrite(
      module, Form(slices={f"{first}:0": 2, f"{first}:1": 2})
    )
    assert len(outcome.actions) == 1
    (refusal,) = outcome.refusals
    assert f"shares operations with {first}:0" in refusal.reason

  def test_one_piece_is_the_program_as_written(self):
    module = steps.module(steps.lower("unrolled"))
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
