# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The Mixture-of-Experts example trains and sends tokens to their experts."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from flax import linen as nn
import hypothesis
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from common import sharding
from common import step as step_lib
import example_training
from lagom_xla import cluster as cluster_lib
from lagom_xla import validation
from lagom_xla.compile import load
from lagom_xla.report import results
from lagom_xla.tuner import tuner
from moe import config as moe_config
from moe import model as moe_model
from moe import train

BATCH_SIZE = 16
SEQ_LEN = 16
NUM_STEPS = 24


@functools.cache
def step_of(**kwargs: Any) -> tuple[Any, Any]:
  return train.train_step(
    jax.devices()[:8],
    model="tiny",
    batch_size=BATCH_SIZE,
    seq_len=SEQ_LEN,
    learning_rate=3e-3,
    **kwargs,
  )


@functools.cache
def initial_state() -> Any:
  """A state on the host, the same for every mesh."""
  _, (state_spec, _) = step_of()
  state = step_lib.init_state(train.model_of, state_spec, model="tiny")
  return jax.device_get(state)


def trained(num_steps: int, **kwargs: Any) -> dict[str, np.ndarray]:
  step, specs = step_of(**kwargs)
  return example_training.metrics_of(
    step, specs, initial_state(), num_steps=num_steps
  )


def test_meshes_and_micro_batches_have_the_same_metrics():
  whole = trained(NUM_STEPS)
  example_training.assert_learns(whole)
  # Routing of a token does not depend on the rest of its batch.
  here = trained(3, mesh="fsdp:2,expert:4", micro_batches="2")
  example_training.assert_alike(here, whole)


def test_each_layer_sends_its_tokens_six_times(h100s):
  target = load.load(
    f"{train.__file__}:train_step",
    cluster_lib.parse("1x8xh100"),
    arguments={"model": "tiny"},
  )
  totals = validation.write(results.inspection(tuner.inspect(target)))["totals"]
  c = moe_config.SIZES["tiny"]
  # Two sequences on each device, in bfloat16; an expert takes 10 of 64 tokens:
  # 1.25 times the 8 that it would get if all 16 got as many.
  tokens = 2 * c.num_experts * 10 * c.d_model * 2
  # There and back: forward, again to recompute, and backward.
  assert totals["all-to-all"]["operand_bytes"] == c.num_layers * 6 * tokens


def test_each_device_holds_an_equal_share_of_the_experts():
  _, (state, _) = train.train_step(jax.devices()[:8], model="olmoe-1b-7b")
  ffn = state.params["layers"]["ffn"]
  c = moe_config.SIZES["olmoe-1b-7b"]
  for name, inner in (
    ("gate", (c.d_model, c.d_ffn)),
    ("up", (c.d_model, c.d_ffn)),
    ("down", (c.d_ffn, c.d_model)),
  ):
    shard = ffn[name].sharding.shard_shape(ffn[name].shape)
    assert shard == (c.num_layers, c.num_experts // 8, *inner)
  for leaf in jax.tree.leaves(state.params):
    assert np.prod(leaf.sharding.shard_shape(leaf.shape)) * 8 == leaf.size


@pytest.mark.parametrize("size", moe_config.SIZES)
def test_num_params_is_the_size_of_the_parameter_tree(size):
  _, (state, _) = train.train_step(jax.devices()[:8], model=size)
  sizes = [leaf.size for leaf in jax.tree.leaves(state.params)]
  assert sum(sizes) == moe_config.SIZES[size].num_params()


def test_an_olmoe_has_the_published_number_of_parameters():
  # 6.9 billion (arXiv 2409.02060, table 1).
  assert round(moe_config.SIZES["olmoe-1b-7b"].num_params() / 1e9, 1) == 6.9


@hypothesis.settings(max_examples=30)
@hypothesis.given(
  seed=st.integers(0, 999), capacity=st.integers(1, 6), k=st.integers(1, 3)
)
def test_tokens_get_distinct_slots_until_an_expert_is_full(seed, capacity, k):
  num_experts, seq_len = 4, 6
  rng = np.random.default_rng(seed)
  chosen = np.stack([rng.permutation(num_experts)[:k] for _ in range(seq_len)])
  slots = moe_model.assign_slots(
    jnp.asarray(chosen)[None], num_experts, capacity
  )
  taken = [0] * num_experts
  for expert, slot in zip(chosen.flat, np.asarray(slots).flat, strict=True):
    full = taken[expert] == capacity
    expected = num_experts if full else expert
    assert slot == expected * capacity + (0 if full else taken[expert])
    taken[expert] += not full


def test_balance_loss_is_1_for_even_load_and_4_for_one_of_4_experts():
  even = jnp.full((1, 4, 4), 0.25)
  each_its_own = jnp.arange(4)[None, :, None]
  assert moe_model.balance_loss(even, each_its_own) == pytest.approx(1)
  favorite = jax.nn.one_hot(jnp.zeros((1, 4), jnp.int32), 4)
  all_to_one = jnp.zeros((1, 4, 1), jnp.int32)
  assert moe_model.balance_loss(favorite, all_to_one) == pytest.approx(4)


def test_the_output_is_the_weighted_sum_of_the_chosen_experts():
  # Capacity for every token in every expert: none is dropped.
  c = dataclasses.replace(moe_config.SIZES["tiny"], capacity_factor=8.0)
  mesh = sharding.make_mesh(jax.devices()[:8], "expert:8", ("fsdp", "expert"))
  layer = moe_model.Experts(c, mesh)
  x = jax.random.normal(jax.random.key(1), (8, 16, c.d_model), jnp.bfloat16)
  params = nn.unbox(jax.jit(layer.init)(jax.random.key(0), x)["params"])
  actual = jax.jit(layer.apply)({"params": params}, x)

  w = {name: np.asarray(value, np.float32) for name, value in params.items()}
  rows = np.asarray(x, np.float32)
  probabilities = np.asarray(jax.nn.softmax(rows @ w["router"]))
  hidden = jax.nn.silu(np.einsum("bsd,edf->bsef", rows, w["gate"]))
  hidden = hidden * np.einsum("bsd,edf->bsef", rows, w["up"])
  of_experts = np.einsum("bsef,efd->bsed", hidden, w["down"])
  kept = probabilities >= np.sort(probabilities)[..., -c.num_chosen, None]
  expected = np.einsum("bsed,bse->bsd", of_experts, probabilities * kept)
  # bfloat16 has 8 bits; a router's tie may fall the other way.
  difference = np.abs(np.asarray(actual, np.float32) - expected).max(axis=-1)
  assert np.mean(difference < 0.03 * np.abs(expected).max()) > 0.95


@pytest.mark.parametrize(
  ("kwargs", "message"),
  [
    ({"model": "olmo"}, "no model 'olmo': choose one of tiny"),
    ({"model": "tiny", "layers": "loop"}, "choose 'scan' or 'unroll'"),
    ({"model": "tiny", "mesh": "tp:8"}, "sizes for 'fsdp' and 'expert'"),
    (
      {"model": "tiny", "batch_size": 12, "mesh": "fsdp:2,expert:4"},
      "batch_size is 12, which fsdp:2,expert:4 cannot split evenly",
    ),
  ],
)
def test_invalid_arguments_are_refused_with_one_sentence(kwargs, message):
  with pytest.raises(ValueError, match=message):
    train.train_step(jax.devices()[:8], **kwargs)
