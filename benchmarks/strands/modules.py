# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The train steps that strands and slices are judged on, by name.

Each is one `jax.shard_map` (benchmarks/workloads): collectives are where
Megatron-LM has them, layers are a scan, micro-batches a scan around it, and a
layer's activations are computed again in its backward pass. Attention is one
library call. All are compiled for the GPUs of their cluster, without a GPU.

*70B* is a quarter of Llama 3 70B, 20 of its 80 layers with embedding and head,
as a stage of a pipeline has: all of it fits neither 8 nor 64 H100s without one.

*25B* has the parallelism and the GPUs of DHelix's (arXiv 2411.15871) models of
that size, 8 x 8 on 64 A40s. Its sizes are chosen here: the paper's are not in
what was at hand.

*Context parallelism* gathers keys and values of the whole sequence, in place of
a ring of sends.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses

import jax

from benchmarks.workloads import architectures
from benchmarks.workloads import layout as layout_lib
from benchmarks.workloads import train_step
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import target as target_lib

_GPUS_PER_NODE = 8

# Attention has no code here: a compile to the end only tells the memory.
_MOCKED = {"xla_gpu_mock_custom_calls": True}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Module:
  """A train step on a cluster.

  Attributes:
    name: what the tables call it.
    nodes: as on the command line, such as "8xh100" or "lagom_a".
    num_nodes: how many of them.
    workload: the step.
  """

  name: str
  nodes: str
  num_nodes: int
  workload: train_step.Workload

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

  def lowered(self, *, microbatches_per_trip: int = 1) -> jax.stages.Lowered:
    """The step for the cluster's devices.

    Args:
      microbatches_per_trip: of the loop over micro-batches.
    """
    workload = dataclasses.replace(
      self.workload, microbatches_per_trip=microbatches_per_trip
    )
    step, args = train_step.train_step(
      devices_lib.devices(self.cluster), workload
    )
    return step.lower(*args)

  def target(self, lowered: jax.stages.Lowered) -> target_lib.Target:
    """What is tuned: this step, or another form of it."""
    step = lowered_lib.LoweredStep(
      lowered, self.cluster, options_to_the_end=_MOCKED
    )
    return target_lib.StepTarget(
      name=self.name, cluster=self.cluster, step=step
    )


def _llama(model: str, num_nodes: int, num_microbatches: int) -> Module:
  arch = architectures.ARCHITECTURES[f"llama-3-{model}"]
  if model == "70b":
    arch = dataclasses.replace(arch, num_layers=arch.num_layers // 4)
  return Module(
    name=f"llama-{model}-tp-{num_nodes}x8-acc{num_microbatches}",
    nodes="8xh100",
    num_nodes=num_nodes,
    workload=train_step.Workload(
      arch=arch,
      layout=_tensor_parallel(num_nodes),
      microbatch_size=1,
      num_microbatches=num_microbatches,
      seq_len=8192,
    ),
  )


def _tensor_parallel(num_nodes: int) -> layout_lib.Layout:
  return layout_lib.Layout(
    kind="tp",
    data=num_nodes,
    model=_GPUS_PER_NODE,
    splits_tokens=True,
    shards_state=num_nodes > 1,
  )


def _gpt_25b() -> architectures.Architecture:
  """A GPT with 25 thousand million parameters."""
  num_layers, width, vocab_size = 54, 6144, 50304
  # Products; their biases and the norms' scales and biases; the final norm's.
  in_layer = 12 * width**2 + 9 * width + 4 * width
  return architectures.Architecture(
    num_layers=num_layers,
    d_model=width,
    num_heads=48,
    num_kv_heads=48,
    head_dim=128,
    d_ffn=4 * width,
    vocab_size=vocab_size,
    num_params=num_layers * in_layer + 2 * width + vocab_size * (2 * width + 1),
    norm="layer",
    norm_has_bias=True,
    has_bias=True,
    is_gated=False,
  )


def _others() -> tuple[Module, ...]:
  return (
    Module(
      name="llama-8b-cp-1x8-acc4",
      nodes="8xh100",
      num_nodes=1,
      workload=train_step.Workload(
        arch=architectures.ARCHITECTURES["llama-3-8b"],
        layout=layout_lib.Layout(kind="cp", model=_GPUS_PER_NODE),
        microbatch_size=1,
        num_microbatches=4,
        seq_len=32768,
      ),
    ),
    Module(
      name="olmoe-ep-1x8-acc4",
      nodes="8xh100",
      num_nodes=1,
      workload=train_step.Workload(
        arch=architectures.ARCHITECTURES["olmoe-1b-7b"],
        layout=layout_lib.Layout(kind="ep", data=_GPUS_PER_NODE),
        microbatch_size=2,
        num_microbatches=4,
        seq_len=4096,
      ),
    ),
    Module(
      name="gpt-25b-tp-8xlagom_a-acc8",
      nodes="lagom_a",
      num_nodes=8,
      workload=train_step.Workload(
        arch=_gpt_25b(),
        layout=_tensor_parallel(8),
        microbatch_size=1,
        num_microbatches=8,
        seq_len=4096,
      ),
    ),
  )


MODULES: Mapping[str, Module] = {
  module.name: module
  for module in (
    *(
      _llama(model, num_nodes, num_microbatches)
      for model in ("8b", "70b")
      for num_nodes in (1, 8)
      for num_microbatches in (4, 8)
    ),
    *_others(),
  )
}
