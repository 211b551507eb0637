# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The paper's workloads (arXiv 2602.20656, table 2), and what it leaves open.

The table gives models, GPUs, and batch sizes. These are our choices:

*Sequence length and precision.* 2,048 tokens, which all of the models support,
in bfloat16 with float32 sums and optimizer.

*Recomputation.* The backward pass recomputes a layer's activations; without
this, most of the models do not fit 48 GB. It always gathers weights again.

*FSDP* is PyTorch's: one gather per layer (XLA's combiners may combine a layer,
but no more), started a layer ahead (XLA pipelines gathers), with a gather and a
scatter in flight at once (XLA's overlap limit of 2).

*TP* is DeepSpeed-Domino's, and *EP* is dual-batch overlap: two halves of a
microbatch. XLA's dot merger would join the halves' products, so it is off, and
so is the combining of their all-reduces. Two layers share a loop body, so that
not all collectives at its end are exposed.

*EP* sends tokens by all-to-all, with a balanced router. All parameters except
experts are on every GPU, and each layer sums their gradients at once.

*Adam* keeps its first moment in bfloat16: in float32, the state of
DeepSeek-MoE-16B would take 39.5 GB per GPU, and XLA overlaps nothing in a step
whose arguments exceed 80 % of the memory. Otherwise schedules ignore memory.

*XLA.* On A40, the latency-hiding scheduler is off by default; it is on here.
Matrix products are library calls, which the scheduler counts as long, as after
autotuning. All columns of a row share one schedule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import dataclasses

from benchmarks.workloads import decoder
from benchmarks.workloads import layout as layout_lib
from benchmarks.workloads import train_step
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import options as options_lib

CLUSTERS = ("lagom_a", "lagom_b")

_GPUS_PER_NODE = 8
_BF16_BYTES = 2
_MEMORY_SLOP_PERCENT = 1000

# Sequences per GPU and microbatch, and per step: per GPU with FSDP, in total
# with TP.
_FSDP = {"phi-2": (2, 2), "llama-3-8b": (1, 2), "mpt-7b": (1, 2)}
_TP = {"phi-2": (8, 512), "llama-3-8b": (4, 256), "mpt-7b": (2, 256)}
_EP = {"deepseek-moe-16b": 2, "olmoe-1b-7b": 2}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Case:
  """A workload on a cluster.

  Attributes:
    model: a key of decoder.ARCHITECTURES.
    cluster: the paper's cluster; one of CLUSTERS.
    num_nodes: the number of its nodes in use.
    workload: the train step.
  """

  model: str
  cluster: str
  num_nodes: int
  workload: train_step.Workload

  @property
  def kind(self) -> str:
    """The parallelism: "fsdp", "tp" or "ep"."""
    return self.workload.layout.kind

  @property
  def name(self) -> str:
    """As in `--only`: model, parallelism, GPUs, cluster."""
    num_gpus = self.num_nodes * _GPUS_PER_NODE
    return f"{self.model}/{self.kind}/{num_gpus}/{self.cluster[-1]}"

  def step(self) -> step_lib.Step:
    """The train step as XLA schedules it, with its costs."""
    whole = cluster_lib.parse(self.cluster)
    cluster = dataclasses.replace(whole, num_nodes=self.num_nodes)
    lowered = train_step.lower(devices_lib.devices(cluster), self.workload)
    target = target_lib.of_step(lowered, cluster, name=self.name)
    # XLA has no cost estimates for A40s; requesting them would compile twice.
    options = {compiler.ESTIMATES: False, **xla_options(self.workload)}
    module = target.schedule(config_lib.XlaConfig(options=options))
    return step_lib.of_module(module, cluster)


def xla_options(
  workload: train_step.Workload,
) -> Mapping[str, bool | int | float | str]:
  """The XLA options of a workload; see the module's docstring."""
  options: dict[str, bool | int] = {
    "xla_gpu_enable_latency_hiding_scheduler": True,
    "xla_gpu_enable_triton_gemm": False,
    "xla_gpu_memory_limit_slop_factor": _MEMORY_SLOP_PERCENT,
  }
  layout = workload.layout
  if layout.kind == "fsdp":
    layer_bytes = _BF16_BYTES * workload.arch.num_params
    layer_bytes //= workload.arch.num_layers
    options |= {
      "xla_gpu_enable_pipelined_all_gather": True,
      "xla_gpu_experimental_parallel_collective_overlap_limit": 2,
      "xla_gpu_all_gather_combine_threshold_bytes": layer_bytes,
      "xla_gpu_reduce_scatter_combine_threshold_bytes": layer_bytes
      // layout.data,
    }
  else:
    options |= {
      "xla_gpu_dot_merger_threshold_mb": 0,
      "xla_gpu_all_reduce_combine_threshold_bytes": 1,
    }
  return options_lib.fit(options).options


def table_2() -> Iterator[Case]:
  """All workloads of the paper, on both clusters."""
  for cluster in CLUSTERS:
    for num_nodes in (1, 2):
      fsdp = layout_lib.Layout(kind="fsdp", data=num_nodes * _GPUS_PER_NODE)
      for model, (size, per_gpu) in _FSDP.items():
        yield _case(model, cluster, num_nodes, fsdp, size, per_gpu // size)
      tp = layout_lib.Layout(kind="tp", data=num_nodes, model=_GPUS_PER_NODE)
      for model, (size, per_step) in _TP.items():
        num_microbatches = per_step // (size * num_nodes)
        yield _case(model, cluster, num_nodes, tp, size, num_microbatches)
    ep = layout_lib.Layout(kind="ep", data=_GPUS_PER_NODE)
    for model, size in _EP.items():
      yield _case(model, cluster, 1, ep, size, 1)


def _case(
  model: str,
  cluster: str,
  num_nodes: int,
  layout: layout_lib.Layout,
  microbatch_size: int,
  num_microbatches: int,
) -> Case:
  is_cut = layout.kind != "fsdp"
  return Case(
    model=model,
    cluster=cluster,
    num_nodes=num_nodes,
    workload=train_step.Workload(
      arch=decoder.ARCHITECTURES[model],
      layout=layout,
      microbatch_size=microbatch_size,
      num_microbatches=num_microbatches,
      num_streams=2 if is_cut else 1,
      layers_per_trip=2 if is_cut else 1,
    ),
  )
