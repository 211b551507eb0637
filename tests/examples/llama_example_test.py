# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The Llama example trains equally on every mesh, and counts its parameters."""

from __future__ import annotations

import functools
from typing import Any

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from common import data
from common import sharding
from common import step as step_lib
import example_training
from llama import config as llama_config
from llama import train
from llama.model import Llama

MESHES = ("fsdp:8", "tp:8", "fsdp:4,tp:2")
NUM_STEPS = 24
# For the other meshes, which are compared with the first.
NUM_FIRST_STEPS = 10
BATCH_SIZE = 8
SEQ_LEN = 32


@functools.cache
def step_on(mesh: str, **kwargs: str) -> tuple[Any, Any]:
  return train.train_step(
    jax.devices()[:8],
    model="tiny",
    mesh=mesh,
    batch_size=BATCH_SIZE,
    seq_len=SEQ_LEN,
    learning_rate=3e-3,
    **kwargs,
  )


@functools.cache
def initial_state() -> Any:
  """A state on the host, the same for every mesh."""
  _, (state_spec, _) = step_on(MESHES[0])
  state = step_lib.init_state(train.model_of, state_spec, model="tiny")
  return jax.device_get(state)


def trained(mesh: str, num_steps: int, **kwargs: str) -> dict[str, np.ndarray]:
  step, specs = step_on(mesh, **kwargs)
  return example_training.metrics_of(
    step, specs, initial_state(), num_steps=num_steps
  )


@pytest.fixture(scope="module")
def whole() -> dict[str, np.ndarray]:
  return trained(MESHES[0], NUM_STEPS)


def test_loss_starts_at_chance_and_falls(whole):
  example_training.assert_learns(whole)


@pytest.mark.parametrize(
  ("mesh", "num_steps", "kwargs"),
  [
    *((mesh, NUM_FIRST_STEPS, {}) for mesh in MESHES[1:]),
    ("fsdp:2,tp:4", 3, {"accumulate": "4", "sequence_parallel": "true"}),
    ("fsdp:4,tp:2", 3, {"micro_batches": "2"}),
  ],
)
def test_all_meshes_and_micro_batches_have_the_same_metrics(
  whole, mesh, num_steps, kwargs
):
  here = trained(mesh, num_steps, **kwargs)
  example_training.assert_alike(here, whole)


@pytest.mark.parametrize(
  ("size", "layers"),
  [*((size, "scan") for size in llama_config.SIZES), ("tiny", "unroll")],
)
def test_num_params_is_the_size_of_the_parameter_tree(size, layers):
  config = llama_config.llama_config(size, layers=layers)
  _, (state, _) = train.train_step(jax.devices()[:8], model=size, layers=layers)
  sizes = [leaf.size for leaf in jax.tree.leaves(state.params)]
  assert sum(sizes) == config.num_params()


def test_a_llama_3_1_8b_has_the_published_number_of_parameters():
  # "8.03B params" in its model card; the untied head is among them.
  assert llama_config.SIZES["8b"].num_params() == 8_030_261_248


def test_the_state_is_donated_and_returned_with_the_same_shardings():
  step, specs = step_on("fsdp:4,tp:2")
  state_spec, _ = specs
  state, batch = jax.tree.map(
    lambda spec: jax.device_put(
      np.zeros(spec.shape, spec.dtype), spec.sharding
    ),
    specs,
  )
  after, _ = step(state, batch)
  assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))
  for leaf, spec in zip(
    jax.tree.leaves(after), jax.tree.leaves(state_spec), strict=True
  ):
    assert (leaf.shape, leaf.dtype) == (spec.shape, spec.dtype)
    assert leaf.sharding.is_equivalent_to(spec.sharding, leaf.ndim)


def test_fsdp_splits_all_parameters_evenly():
  _, (state, _) = train.train_step(jax.devices()[:8], model="8b")
  for leaf in jax.tree.leaves(state.params):
    assert np.prod(leaf.sharding.shard_shape(leaf.shape)) * 8 == leaf.size


def test_numeric_arguments_may_be_text():
  _, (_, batch) = train.train_step(
    jax.devices()[:8], model="tiny", batch_size="16", seq_len="32"
  )
  assert batch["inputs"].shape == (16, 32)


@pytest.mark.parametrize(
  ("kwargs", "message"),
  [
    ({"model": "9b"}, "no model '9b': choose one of tiny"),
    ({"model": "tiny", "layers": "loop"}, "choose 'scan' or 'unroll'"),
    ({"model": "tiny", "mesh": "fsdp:4"}, "takes 4 devices and there are 8"),
    ({"model": "tiny", "mesh": "fsdp=8"}, "cannot be read at 'fsdp=8'"),
    ({"model": "tiny", "mesh": "dp:8"}, "cannot be read at 'dp:8'"),
    ({"model": "tiny", "batch_size": 12}, "batch_size is 12"),
    (
      {"model": "tiny", "sequence_parallel": "tp"},
      "sequence_parallel is 'tp': give true or false",
    ),
    (
      {"model": "tiny", "batch_size": 24, "accumulate": 2},
      "24, which fsdp:8 and 2 micro-batches cannot split evenly",
    ),
    (
      {
        "model": "tiny",
        "mesh": "tp:8",
        "seq_len": 12,
        "sequence_parallel": True,
      },
      "seq_len is 12, which tp:8 cannot split evenly",
    ),
  ],
)
def test_invalid_arguments_are_refused_with_one_sentence(kwargs, message):
  with pytest.raises(ValueError, match=message):
    train.train_step(jax.devices()[:8], **kwargs)


def one_device_llama(layers: str) -> Llama:
  config = llama_config.llama_config("tiny", layers=layers)
  return Llama(config, sharding.make_mesh(jax.devices()[:1]))


@functools.cache
def tokens_and_params() -> tuple[jax.Array, Any]:
  tokens = jax.random.randint(jax.random.key(1), (1, 16), 0, 256)
  init = jax.jit(one_device_llama("scan").init)
  boxed = init(jax.random.key(0), tokens)["params"]
  return tokens, nn.unbox(boxed)


def logits_of(
  params: Any, tokens: jax.Array, layers: str = "scan"
) -> jax.Array:
  apply = jax.jit(one_device_llama(layers).apply)
  return apply({"params": params}, tokens)


def test_unrolled_and_scanned_layers_compute_the_same():
  tokens, params = tokens_and_params()
  unrolled = {name: value for name, value in params.items() if name != "layers"}
  for index in range(llama_config.SIZES["tiny"].num_layers):
    unrolled[f"layer_{index}"] = jax.tree.map(
      lambda leaf, index=index: leaf[index], params["layers"]
    )
  np.testing.assert_allclose(
    logits_of(unrolled, tokens, "unroll"),
    logits_of(params, tokens),
    atol=2e-2,
  )


def test_a_token_changes_no_earlier_logits():
  tokens, params = tokens_and_params()
  changed = tokens.at[0, 10].add(1)
  before, after = logits_of(params, tokens), logits_of(params, changed)
  np.testing.assert_array_equal(before[0, :10], after[0, :10])
  assert (np.abs(before - after)[0, 10:].max(axis=-1) > 0).all()


def test_cross_entropy_is_the_log_likelihood_of_the_target():
  logits = jax.random.normal(jax.random.key(0), (2, 3, 5))
  targets = jnp.array([[0, 4, 2], [1, 1, 3]])
  expected = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
  np.testing.assert_allclose(
    step_lib.cross_entropy(logits, targets), expected.mean(), rtol=1e-6
  )


def test_targets_are_the_inputs_one_byte_later_and_wrap_around():
  batch = next(data.byte_batches(b"abc", batch_size=2, seq_len=8))
  for inputs, targets in zip(batch["inputs"], batch["targets"], strict=True):
    window = bytes(inputs.astype(np.uint8))
    assert window in b"abcabcabcabc"
    assert bytes(targets.astype(np.uint8))[:-1] == window[1:]


def test_an_empty_text_is_refused():
  with pytest.raises(ValueError, match="training text is empty"):
    next(data.byte_batches(b"", batch_size=1, seq_len=1))
