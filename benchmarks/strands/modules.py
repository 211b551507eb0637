# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The train steps that strands and slices are judged on, by name.

Each is one `jax.shard_map` (benchmarks/workloads): collectives are where
Megatron-LM has them, layers are a scan, micro-batches a scan around it, and a
layer's activations are computed again in its backward pass. Attention is one
library call. All are compiled for the GPUs of their cluster, without a GPU.

*gspmd* is examples/llama, where XLA's partitioner places the collectives and
attention is written out.

*70B-quarter* is a quarter of Llama 3 70B, 20 of its 80 layers with embedding
and head, as a stage of a pipeline has: all of it fits neither 8 nor 64 H100s
without one. *Mixtral-half* has 16 of 32 layers for the same reason.

*dhellam-demo* is what DHelix's authors ship, *qwen3-14b* what TWIST measured,
on as many GPUs, with their micro-batches of 4 sequences; *25B* has the
parallelism and the GPUs of DHelix's models of that size.

*Context parallelism* gathers keys and values of the whole sequence, in place of
a ring of sends.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import pathlib
import sys

from benchmarks.workloads import architectures
from benchmarks.workloads import layout as layout_lib
from benchmarks.workloads import train_step
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import load
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import target as target_lib


def say(what: str) -> None:
  """A line of progress."""
  print(f"strands: {what}", file=sys.stderr, flush=True)


_HEAD_DIM = 128


def part_of(name: str, num_layers: int) -> architectures.Architecture:
  """So many layers of a published model, with its embedding and head."""
  whole = architectures.ARCHITECTURES[name]
  return dataclasses.replace(whole, num_layers=num_layers)


def gpt_25b() -> architectures.Architecture:
  """A GPT with 25 thousand million parameters.

  DHelix (arXiv 2411.15871) ran models of that size on 64 A40s, 8 data-parallel
  by 8 tensor-parallel. Their widths and depths are not public; these are ours.
  """
  num_layers, width, vocab_size = 54, 6144, 50304
  # Products; their biases and the norms' scales and biases; the final norm's.
  in_layer = 12 * width**2 + 9 * width + 4 * width
  return architectures.Architecture(
    num_layers=num_layers,
    d_model=width,
    num_heads=48,
    num_kv_heads=48,
    head_dim=_HEAD_DIM,
    d_ffn=4 * width,
    vocab_size=vocab_size,
    num_params=num_layers * in_layer + 2 * width + vocab_size * (2 * width + 1),
    norm="layer",
    norm_has_bias=True,
    has_bias=True,
    is_gated=False,
  )


def dhellam_demo() -> architectures.Architecture:
  """The model that DHelix's authors ship with their code.

  8 layers as wide as Llama 3.1 70B's with attention of as many key as query
  heads, and Llama 2's vocabulary (DHeLlam, script/run.sh at commit 4834e95).
  """
  return _llama_like(8, 8192, heads=(64, 64), d_ffn=28672, vocab_size=32000)


def qwen3_14b_like() -> architectures.Architecture:
  """Qwen3-14B (its config.json) without the norms of queries and keys.

  TWIST, DHelix rebuilt for Hopper, was measured on such a one, which had no
  rotary embedding either; here that is left in.
  """
  return _llama_like(40, 5120, heads=(40, 8), d_ffn=17408, vocab_size=151936)


def _llama_like(
  num_layers: int,
  width: int,
  *,
  heads: tuple[int, int],
  d_ffn: int,
  vocab_size: int,
) -> architectures.Architecture:
  """A decoder with SwiGLU and RMSNorm, and heads as wide as Llama's."""
  num_heads, num_kv_heads = heads
  attention = 2 * width * (num_heads + num_kv_heads) * _HEAD_DIM
  in_layer = attention + 3 * width * d_ffn + 2 * width
  return architectures.Architecture(
    num_layers=num_layers,
    d_model=width,
    num_heads=num_heads,
    num_kv_heads=num_kv_heads,
    head_dim=_HEAD_DIM,
    d_ffn=d_ffn,
    vocab_size=vocab_size,
    num_params=num_layers * in_layer + width + 2 * vocab_size * width,
  )


_EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"

# Attention has no code here: a compile to the end only tells the memory.
_MOCKED = {"xla_gpu_mock_custom_calls": True}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Example:
  """A train step of examples/, whose collectives XLA's partitioner places.

  Attributes:
    file: such as "llama/train.py".
    arguments: of its `train_step`.
  """

  file: str
  arguments: Mapping[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Module:
  """A train step on a cluster.

  Attributes:
    name: what the tables call it.
    nodes: as on the command line, such as "8xh100" or "lagom_a".
    num_nodes: how many of them.
    program: the step.
  """

  name: str
  nodes: str
  num_nodes: int
  program: train_step.Workload | Example

  @property
  def cluster(self) -> cluster_lib.Cluster:
    """What it runs on."""
    text = self.nodes if self.nodes.startswith("lagom") else f"1x{self.nodes}"
    return dataclasses.replace(
      cluster_lib.parse(text), num_nodes=self.num_nodes
    )

  @property
  def cluster_name(self) -> str:
    """What the tables call the cluster."""
    return f"{self.num_nodes}x{self.nodes}"

  def target(self) -> target_lib.Target:
    """What is tuned."""
    cluster = self.cluster
    if isinstance(self.program, Example):
      text = f"{_EXAMPLES / self.program.file}:train_step"
      return load.load(text, cluster, arguments=self.program.arguments)
    step, args = train_step.train_step(
      devices_lib.devices(cluster), self.program
    )
    lowered = lowered_lib.LoweredStep(
      step.lower(*args), cluster, options_to_the_end=_MOCKED
    )
    return target_lib.StepTarget(
      name=self.name, cluster=cluster, lowered=lowered
    )


def _one_node(name: str, program: train_step.Workload | Example) -> Module:
  return Module(name=name, nodes="8xh100", num_nodes=1, program=program)


def _tensor_parallel(
  name: str,
  arch: architectures.Architecture,
  *,
  num_microbatches: int,
  num_nodes: int = 1,
  nodes: str = "8xh100",
  microbatch_size: int = 1,
  seq_len: int = 8192,
) -> Module:
  """TP over each node with sequence parallelism, data parallel over nodes."""
  return Module(
    name=f"{name}-tp-{num_nodes}x8-acc{num_microbatches}",
    nodes=nodes,
    num_nodes=num_nodes,
    program=train_step.Workload(
      arch=arch,
      layout=layout_lib.Layout(
        kind="tp",
        data=num_nodes,
        model=8,
        splits_tokens=True,
        shards_state=num_nodes > 1,
      ),
      microbatch_size=microbatch_size,
      num_microbatches=num_microbatches,
      seq_len=seq_len,
    ),
  )


def _experts(
  name: str, arch: architectures.Architecture, *, microbatch_size: int
) -> Module:
  """Experts split over the GPUs of a node, everything else on each."""
  return _one_node(
    f"{name}-ep-1x8-acc4",
    train_step.Workload(
      arch=arch,
      layout=layout_lib.Layout(kind="ep", data=8),
      microbatch_size=microbatch_size,
      num_microbatches=4,
      seq_len=4096,
    ),
  )


_LLAMA_8B = architectures.ARCHITECTURES["llama-3-8b"]
MODULES: Mapping[str, Module] = {
  module.name: module
  for module in (
    *(
      _tensor_parallel(
        name, arch, num_nodes=num_nodes, num_microbatches=num_microbatches
      )
      for name, arch in (
        ("llama-8b", _LLAMA_8B),
        ("llama-70b-quarter", part_of("llama-3-70b", 20)),
      )
      for num_nodes in (1, 8)
      for num_microbatches in (4, 8)
    ),
    _tensor_parallel(
      "dhellam-demo", dhellam_demo(), num_microbatches=4, microbatch_size=4
    ),
    _tensor_parallel(
      "qwen3-14b",
      qwen3_14b_like(),
      nodes="8xh200",
      num_microbatches=25,
      microbatch_size=4,
    ),
    _tensor_parallel(
      "gpt-25b",
      gpt_25b(),
      nodes="lagom_a",
      num_nodes=8,
      num_microbatches=8,
      seq_len=4096,
    ),
    _one_node(
      "llama-8b-gspmd-tp-1x8-acc4",
      Example(
        file="llama/train.py",
        arguments={
          "mesh": "tp:8",
          "sequence_parallel": "true",
          "accumulate": "4",
          "batch_size": "4",
          "seq_len": "8192",
        },
      ),
    ),
    _one_node(
      "llama-8b-cp-1x8-acc4",
      train_step.Workload(
        arch=_LLAMA_8B,
        layout=layout_lib.Layout(kind="cp", model=8),
        microbatch_size=1,
        num_microbatches=4,
        seq_len=32768,
      ),
    ),
    _experts(
      "olmoe", architectures.ARCHITECTURES["olmoe-1b-7b"], microbatch_size=2
    ),
    _experts("mixtral-half", part_of("mixtral-8x7b", 16), microbatch_size=1),
  )
}
