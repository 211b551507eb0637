# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The totals of `inspect` for the Llama example equal counts from shapes.

Counts by hand use only the sizes in examples/llama/config.py and the
communication described in examples/llama/README.md. A bfloat16 has 2 bytes, a
float32 4. Sizes of weights are those of one `tp` shard; all except norms are
split over `tp`.
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
# XLA takes a second for each unrolled layer; two of the eight are enough.
_NUM_LAYERS = {"small": 2}
_each_case = pytest.mark.parametrize(("size", "mesh", "layers"), _CASES)


@dataclasses.dataclass(frozen=True)
class Counts:
  """Totals for one device and step."""

  gathered_bytes: int
  scattered_bytes: int
  all_reduced_bytes: int
  gemm_flops: int


def hand_count(size: str, mesh: str, layers: str) -> Counts:
  c = llama_config.llama_config(
    size, layers=layers, num_layers=_NUM_LAYERS.get(size, 0)
  )
  fsdp, tp = _MESHES[mesh]
  # Of one `fsdp` shard, whose default batch is two sequences.
  tokens = 2 * c.seq_len
  down = c.d_ffn * c.d_model // tp
  output = c.num_heads * c.head_dim * c.d_model // tp
  key_and_value = 2 * c.num_kv_heads * c.head_dim * c.d_model // tp
  # Query and output; key and value; gate, up and down.
  layer_weights = 2 * output + key_and_value + 3 * down
  # The embedding, or the head.
  vocab_weights = c.vocab_size * c.d_model // tp
  # With two norms in a layer, and one outside.
  layer = layer_weights + 2 * c.d_model
  outside = 2 * vocab_weights + c.d_model

  if tp == 1:
    reduced_bytes = 3 * 4  # The loss and two norms of the gradients.
  else:
    # Residual streams; then per token the largest logit, the sum of
    # exponentials and the target's logit. Then both norms sum the squares of
    # each array of parameters: those that `tp` splits, and where `fsdp` splits
    # them the norms, too, and the loss.
    num_stacks = 1 if c.layers == "scan" else c.num_layers
    reduced_bytes = (5 * c.num_layers + 2) * 2 * tokens * c.d_model
    reduced_bytes += 3 * 4 * tokens + 2 * 4 * (7 * num_stacks + 2)
    if fsdp > 1:
      reduced_bytes += 2 * 4 * (2 * num_stacks + 1) + 4

  # Two operations per weight and token, in each pass that uses the weight.
  # Layers run forward, forward again in the backward pass, and backward for the
  # inputs and for the weights. The second forward pass leaves out the product
  # with `down`: nobody needs its result. Attention is two products, of queries
  # and keys and of their scores and values, with all pairs of tokens: forward,
  # again, and backward for both factors of each.
  per_token = c.num_layers * (4 * layer_weights - down) + 3 * vocab_weights
  scores = tokens * c.seq_len * c.num_heads * c.head_dim // tp
  return Counts(
    # Layers for the forward and the backward pass, the rest once.
    gathered_bytes=2 * (2 * c.num_layers * layer + outside),
    # The gradient of everything, once.
    scattered_bytes=2 * (c.num_layers * layer + outside),
    all_reduced_bytes=reduced_bytes,
    gemm_flops=2 * tokens * per_token + 2 * c.num_layers * scores * 2 * 4,
  )


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
def test_bytes_of_collectives_equal_counts_from_shapes(
  h100s, size, mesh, layers
):
  expected = hand_count(size, mesh, layers)
  totals = inspected(size, mesh, layers)["totals"]
  moved = {
    kind: (total["operand_bytes"], total["result_bytes"])
    for kind, total in totals.items()
  }
  reduced = expected.all_reduced_bytes
  gathered, scattered = expected.gathered_bytes, expected.scattered_bytes
  fsdp, _ = _MESHES[mesh]
  assert moved.pop("all-reduce") == (reduced, reduced)
  if fsdp > 1:
    assert moved.pop("all-gather") == (gathered // fsdp, gathered)
    assert moved.pop("reduce-scatter") == (scattered, scattered // fsdp)
  assert not moved


@_each_case
def test_flops_of_matmuls_equal_counts_from_shapes(h100s, size, mesh, layers):
  expected = hand_count(size, mesh, layers).gemm_flops
  assert inspected(size, mesh, layers)["gemm_flops"] == expected


@pytest.mark.parametrize("mesh", _MESHES)
def test_collectives_of_a_loop_are_counted_once_per_layer(h100s, mesh):
  report = inspected("8b", mesh, "scan")
  num_layers = llama_config.SIZES["8b"].num_layers
  executions = {c["executions"] for c in report["collectives"]}
  assert executions == {1, num_layers}
  assert not report["loops_of_unknown_length"]


def test_sequence_parallelism_replaces_all_reduces_of_activations(h100s):
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
