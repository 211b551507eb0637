# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What `inspect` counts in the Llama example is what its shapes say.

The hand count starts from the sizes in examples/llama/config.py alone, and from
what examples/llama/README.md says about who talks to whom. A bfloat16 has 2
bytes, a float32 4. Sizes of weights are those of one `tp` shard: all are split
over `tp`, but for the norms.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from typing import Any

import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla import validation
from lagom_xla.compile import load
from lagom_xla.report import results
from lagom_xla.tuner import tuner
from llama import config as llama_config

_LLAMA = pathlib.Path(llama_config.__file__).parent
_CLUSTER = "1x8xh100"
_MESHES = {"fsdp:8": (8, 1), "tp:8": (1, 8), "fsdp:4,tp:2": (4, 2)}
_CASES = [
  *(("8b", mesh, "scan") for mesh in _MESHES),
  ("small", "fsdp:8", "unroll"),
  ("tiny", "tp:8", "unroll"),
  ("tiny", "fsdp:4,tp:2", "unroll"),
]
# Unrolled, each layer takes XLA a second: two of the eight say the same.
_NUM_LAYERS = {"small": 2}
_each_case = pytest.mark.parametrize(("size", "mesh", "layers"), _CASES)


@dataclasses.dataclass(frozen=True)
class HandCount:
  """Counts for one device and step, from a size and a mesh."""

  config: llama_config.LlamaConfig
  fsdp: int
  tp: int

  @property
  def tokens(self) -> int:
    """Tokens of one `fsdp` shard, whose default batch is two sequences."""
    return 2 * self.config.seq_len

  @property
  def down_weights(self) -> int:
    return self.config.d_ffn * self.config.d_model // self.tp

  @property
  def output_weights(self) -> int:
    c = self.config
    return c.num_heads * c.head_dim * c.d_model // self.tp

  @property
  def layer_weights(self) -> int:
    """Query and output; key and value; gate, up and down."""
    c = self.config
    key_and_value = 2 * c.num_kv_heads * c.head_dim * c.d_model // self.tp
    return 2 * self.output_weights + key_and_value + 3 * self.down_weights

  @property
  def vocab_weights(self) -> int:
    """The embedding, or the head."""
    return self.config.vocab_size * self.config.d_model // self.tp

  @property
  def layer(self) -> int:
    """A layer's weights with its two norms."""
    return self.layer_weights + 2 * self.config.d_model

  @property
  def outside(self) -> int:
    """Embedding, head and last norm."""
    return 2 * self.vocab_weights + self.config.d_model

  @property
  def gathered_bytes(self) -> int:
    """Layers for the forward and the backward pass, the rest once."""
    return 2 * (2 * self.config.num_layers * self.layer + self.outside)

  @property
  def scattered_bytes(self) -> int:
    """The gradient of everything, once."""
    return 2 * (self.config.num_layers * self.layer + self.outside)

  @property
  def all_reduced_bytes(self) -> int:
    """Residual streams, then numbers per token, then numbers per parameter."""
    if self.tp == 1:
      return 3 * 4  # The loss and two norms of the gradients.
    c = self.config
    num_streams = 5 * c.num_layers + 2
    streams = num_streams * 2 * self.tokens * c.d_model
    # The largest logit, the sum of exponentials, the target's logit.
    per_token = 3 * 4 * self.tokens
    # Both norms sum the squares of each array of parameters: those that `tp`
    # splits, and where `fsdp` splits them the norms, too, and the loss.
    num_stacks = 1 if c.layers == "scan" else c.num_layers
    num_arrays = 7 * num_stacks + 2
    scalars = 2 * 4 * num_arrays
    if self.fsdp > 1:
      scalars += 2 * 4 * (2 * num_stacks + 1) + 4
    return streams + per_token + scalars

  @property
  def gemm_flops(self) -> int:
    """Two operations per weight and token, in each pass that uses the weight.

    Layers run forward, forward again in the backward pass, and backward for the
    inputs and for the weights. The second forward pass leaves out the product
    with `down`: nobody needs its result. Attention is two products, of queries
    and keys and of their scores and values, with all pairs of tokens: forward,
    again, and backward for both factors of each.
    """
    c = self.config
    per_token = c.num_layers * (4 * self.layer_weights - self.down_weights)
    per_token += 3 * self.vocab_weights
    scores = self.tokens * c.seq_len * c.num_heads * c.head_dim // self.tp
    return 2 * self.tokens * per_token + 2 * c.num_layers * scores * 2 * 4


def hand_count(size: str, mesh: str, layers: str) -> HandCount:
  config = llama_config.llama_config(
    size, layers=layers, num_layers=_NUM_LAYERS.get(size, 0)
  )
  return HandCount(config, *_MESHES[mesh])


@functools.cache
def inspected(size: str, mesh: str, layers: str) -> dict[str, Any]:
  target = load.load(
    f"{_LLAMA / 'train.py'}:train_step",
    cluster_lib.parse(_CLUSTER),
    arguments={
      "model": size,
      "mesh": mesh,
      "layers": layers,
      "num_layers": str(_NUM_LAYERS.get(size, 0)),
    },
  )
  return validation.write(results.inspection(tuner.inspect(target)))


@_each_case
def test_the_collectives_move_what_the_shapes_say(h100s, size, mesh, layers):
  expected = hand_count(size, mesh, layers)
  totals = inspected(size, mesh, layers)["totals"]
  moved = {
    kind: (total["operand_bytes"], total["result_bytes"])
    for kind, total in totals.items()
  }
  reduced = expected.all_reduced_bytes
  gathered, scattered = expected.gathered_bytes, expected.scattered_bytes
  fsdp = expected.fsdp
  assert moved.pop("all-reduce") == (reduced, reduced)
  if fsdp > 1:
    assert moved.pop("all-gather") == (gathered // fsdp, gathered)
    assert moved.pop("reduce-scatter") == (scattered, scattered // fsdp)
  assert not moved


@_each_case
def test_the_matrix_products_take_what_the_shapes_say(
  h100s, size, mesh, layers
):
  expected = hand_count(size, mesh, layers).gemm_flops
  assert inspected(size, mesh, layers)["gemm_flops"] == expected


@pytest.mark.parametrize("mesh", _MESHES)
def test_a_loop_counts_as_often_as_it_runs(h100s, mesh):
  report = inspected("8b", mesh, "scan")
  num_layers = llama_config.SIZES["8b"].num_layers
  executions = {c["executions"] for c in report["collectives"]}
  assert executions == {1, num_layers}
  assert not report["loops_of_unknown_length"]


def test_split_sequences_scatter_and_gather_what_whole_ones_all_reduce(h100s):
  target = load.load(
    f"{_LLAMA / 'train.py'}:train_step",
    cluster_lib.parse(_CLUSTER),
    arguments={"model": "8b", "mesh": "tp:8", "sequence_parallel": "true"},
  )
  totals = validation.write(results.inspection(tuner.inspect(target)))["totals"]
  c = llama_config.SIZES["8b"]
  stream = 2 * (2 * c.seq_len) * c.d_model
  # Each half of a layer gathers its input and scatters its output. Backward,
  # the same for gradients, and again but for the last scatter to recompute.
  # The head's input is one more of both, the embedding one all-reduce more.
  assert totals["reduce-scatter"]["operand_bytes"] == stream * (
    5 * c.num_layers + 1
  )
  assert totals["all-gather"]["result_bytes"] == stream * (6 * c.num_layers + 2)
  # The loss as without; and the scales of norms, whose gradients each device
  # has of its own tokens.
  per_token = 3 * 4 * (2 * c.seq_len)
  scalars = 2 * 4 * (7 + 2)
  scales = 2 * c.d_model * (2 * c.num_layers + 1)
  reduced = stream + per_token + scalars + scales
  assert totals["all-reduce"]["operand_bytes"] == reduced
