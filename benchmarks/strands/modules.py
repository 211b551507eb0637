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
parallelism and the GPUs of DHelix's models of that size (models.py).

*Context parallelism* gathers keys and values of the whole sequence, in place of
a ring of sends.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.strands import models
from benchmarks.strands import module as module_lib
from benchmarks.workloads import architectures
from benchmarks.workloads import layout as layout_lib
from benchmarks.workloads import train_step

_GPUS_PER_NODE = 8
_NODES = f"{_GPUS_PER_NODE}xh100"


def _tensor_parallel(
  name: str,
  arch: architectures.Architecture,
  *,
  num_microbatches: int,
  num_nodes: int = 1,
  nodes: str = _NODES,
  microbatch_size: int = 1,
  seq_len: int = 8192,
) -> module_lib.Module:
  """TP over each node with sequence parallelism, data parallel over nodes."""
  return module_lib.Module(
    name=f"{name}-tp-{num_nodes}x{_GPUS_PER_NODE}-acc{num_microbatches}",
    nodes=nodes,
    num_nodes=num_nodes,
    program=train_step.Workload(
      arch=arch,
      layout=layout_lib.Layout(
        kind="tp",
        data=num_nodes,
        model=_GPUS_PER_NODE,
        splits_tokens=True,
        shards_state=num_nodes > 1,
      ),
      microbatch_size=microbatch_size,
      num_microbatches=num_microbatches,
      seq_len=seq_len,
    ),
  )


def _others() -> tuple[module_lib.Module, ...]:
  return (
    _tensor_parallel(
      "dhellam-demo",
      models.dhellam_demo(),
      num_microbatches=4,
      microbatch_size=4,
    ),
    _tensor_parallel(
      "qwen3-14b",
      models.qwen3_14b_like(),
      nodes=f"{_GPUS_PER_NODE}xh200",
      num_microbatches=25,
      microbatch_size=4,
    ),
    _tensor_parallel(
      "gpt-25b",
      models.gpt_25b(),
      nodes="lagom_a",
      num_nodes=8,
      num_microbatches=8,
      seq_len=4096,
    ),
    module_lib.Module(
      name="llama-8b-gspmd-tp-1x8-acc4",
      nodes=_NODES,
      num_nodes=1,
      program=module_lib.Example(
        file="llama/train.py",
        arguments={
          "mesh": f"tp:{_GPUS_PER_NODE}",
          "sequence_parallel": "true",
          "accumulate": "4",
          "batch_size": "4",
          "seq_len": "8192",
        },
      ),
    ),
    module_lib.Module(
      name="llama-8b-cp-1x8-acc4",
      nodes=_NODES,
      num_nodes=1,
      program=train_step.Workload(
        arch=architectures.ARCHITECTURES["llama-3-8b"],
        layout=layout_lib.Layout(kind="cp", model=_GPUS_PER_NODE),
        microbatch_size=1,
        num_microbatches=4,
        seq_len=32768,
      ),
    ),
    _experts(
      "olmoe", architectures.ARCHITECTURES["olmoe-1b-7b"], microbatch_size=2
    ),
    _experts(
      "mixtral-half", models.part_of("mixtral-8x7b", 16), microbatch_size=1
    ),
  )


def _experts(
  name: str, arch: architectures.Architecture, *, microbatch_size: int
) -> module_lib.Module:
  """Experts split over the GPUs of a node, everything else on each."""
  return module_lib.Module(
    name=f"{name}-ep-1x{_GPUS_PER_NODE}-acc4",
    nodes=_NODES,
    num_nodes=1,
    program=train_step.Workload(
      arch=arch,
      layout=layout_lib.Layout(kind="ep", data=_GPUS_PER_NODE),
      microbatch_size=microbatch_size,
      num_microbatches=4,
      seq_len=4096,
    ),
  )


MODULES: Mapping[str, module_lib.Module] = {
  module.name: module
  for module in (
    *(
      _tensor_parallel(
        name, arch, num_nodes=num_nodes, num_microbatches=num_microbatches
      )
      for name, arch in (
        ("llama-8b", architectures.ARCHITECTURES["llama-3-8b"]),
        ("llama-70b-quarter", models.part_of("llama-3-70b", 20)),
      )
      for num_nodes in (1, 8)
      for num_microbatches in (4, 8)
    ),
    *_others(),
  )
}
