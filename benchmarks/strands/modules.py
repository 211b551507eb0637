# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The train steps for judging strands and slices, by name.

Each is one `jax.shard_map` (benchmarks/workloads): collectives are where
Megatron-LM has them, layers are a scan inside a scan over micro-batches, and
the backward pass recomputes a layer's activations. Attention is one library
call. All are compiled for the GPUs of their cluster, without a GPU.

*gspmd* is examples/llama, where XLA's partitioner places the collectives and
attention is written out.

*70B-quarter* is a quarter of Llama 3 70B, like a pipeline stage: 20 of its 80
layers with embedding and head. Without a pipeline, the whole model fits neither
8 nor 64 H100s. *Mixtral-half* has 16 of 32 layers for the same reason.

*dhellam-demo* is the demo of DHelix's authors, and *qwen3-14b* the model that
TWIST measured, on the same numbers of GPUs, with their micro-batches of 4
sequences. *25B* has the parallelism and the GPUs of DHelix's models of that
size.

*Context parallelism* gathers keys and values of the whole sequence instead of a
ring of sends.

*qwen3-30b-a3b* is a model measured with Megatron-Bridge, on the same number of
GPUs. *product-scattered* is one product and the reduce-scatter of its result,
by the number of rows. `PUBLISHED` has measurements of others.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import pathlib
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.workloads import cases
from benchmarks.workloads import decoder
from benchmarks.workloads import layout as layout_lib
from benchmarks.workloads import train_step
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import target as target_lib

# Attention has no code here, so a complete compile only shows the memory.
_MOCKED = {"xla_gpu_mock_custom_calls": True}


def _case(
  name: str,
  model: str,
  layout: layout_lib.Layout,
  *,
  num_layers: int | None = None,
  num_nodes: int = 1,
  nodes: str = "8xh100",
  **sizes: Any,
) -> cases.Case:
  """A model or its first layers; `nodes` is as in the command line."""
  arch = decoder.ARCHITECTURES[model]
  if num_layers is not None:
    arch = dataclasses.replace(arch, num_layers=num_layers)
  workload = train_step.Workload(arch=arch, layout=layout, **sizes)

  def load(_: pathlib.Path | None) -> target_lib.Target:
    text = nodes if nodes.startswith("lagom") else f"1x{nodes}"
    cluster = dataclasses.replace(cluster_lib.parse(text), num_nodes=num_nodes)
    lowered = train_step.lower(devices_lib.devices(cluster), workload)
    return target_lib.StepTarget(
      name=name,
      cluster=cluster,
      lowered=lowered_lib.LoweredStep(
        lowered, cluster, options_to_the_end=_MOCKED
      ),
    )

  return cases.Case(module=name, cluster=f"{num_nodes}x{nodes}", load=load)


def _tensor_parallel(
  name: str,
  model: str,
  *,
  num_microbatches: int,
  num_nodes: int = 1,
  microbatch_size: int = 1,
  seq_len: int = 8192,
  **others: Any,
) -> cases.Case:
  """TP with sequence parallelism in each node, data-parallel over nodes."""
  return _case(
    f"{name}-tp-{num_nodes}x8-acc{num_microbatches}",
    model,
    layout_lib.Layout(
      kind="tp",
      data=num_nodes,
      model=8,
      splits_tokens=True,
      shards_state=num_nodes > 1,
    ),
    num_nodes=num_nodes,
    microbatch_size=microbatch_size,
    num_microbatches=num_microbatches,
    seq_len=seq_len,
    **others,
  )


def _experts(
  name: str,
  model: str,
  *,
  num_nodes: int = 1,
  num_microbatches: int = 4,
  **sizes: Any,
) -> cases.Case:
  """Experts split over all GPUs, everything else replicated."""
  return _case(
    f"{name}-ep-{num_nodes}x8-acc{num_microbatches}",
    model,
    layout_lib.Layout(kind="ep", data=8 * num_nodes),
    num_nodes=num_nodes,
    num_microbatches=num_microbatches,
    seq_len=4096,
    **sizes,
  )


def _product_scattered(num_rows: int) -> cases.Case:
  """A product of 14,336 by 4,096 on each of 8 GPUs, then a reduce-scatter."""
  name = f"product-scattered-{num_rows}"
  cluster = cluster_lib.parse("1x8xh100")

  def load(_: pathlib.Path | None) -> target_lib.Target:
    mesh = jax.sharding.Mesh(devices_lib.devices(cluster), ("model",))
    columns, rows = (jax.P(None, "model"), jax.P("model", None))
    x, w = (
      jax.ShapeDtypeStruct(
        shape, jnp.bfloat16, sharding=jax.NamedSharding(mesh, spec)
      )
      for shape, spec in (
        ((num_rows, 8 * 14336), columns),
        ((8 * 14336, 4096), rows),
      )
    )
    step = jax.shard_map(
      lambda x, w: jax.lax.psum_scatter(x @ w, "model", tiled=True),
      mesh=mesh,
      in_specs=(columns, rows),
      out_specs=rows,
    )
    lowered = jax.jit(step).lower(x, w)
    return target_lib.StepTarget(
      name=name,
      cluster=cluster,
      lowered=lowered_lib.LoweredStep(lowered, cluster),
    )

  return cases.Case(module=name, cluster="1x8xh100", load=load)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Published:
  """A measurement of others.

  Attributes:
    what: its subject, in words.
    source: its source.
    gain: speedup by hiding communication.
  """

  what: str
  source: str
  gain: float


# References for predictions of strands and slices.
PUBLISHED: Mapping[str, Published] = {
  # With HybridEP instead of NCCL's all-to-all; 24.714 and 20.992 s.
  "qwen3-30b-a3b-ep-2x8-acc64": Published(
    what="strands, Qwen3 30B-A3B, experts over 2x8xh100, 64 micro-batches",
    source="NVIDIA-NeMo/Megatron-Bridge#5094",
    gain=1.177,
  ),
  # 245.9 and 253.0 thousand tokens/s. The GPUs follow from the MFU; the tokens
  # per GPU are unknown.
  "grug-360b-a23b-fsdp-1x64": Published(
    what="slices, MoE of 360B, experts' weights gathered over 1x64xgb200",
    source="marin-community/marin#7201",
    gain=1.029,
  ),
  # By a persistent kernel and copy engines, over cuBLAS and NCCL.
  **{
    f"product-scattered-{num_rows}": Published(
      what=f"slices, a product of {num_rows:,} x 14,336 by 4,096 and the"
      " reduce-scatter of its result on 1x8xh100",
      source="meta-pytorch/kraken#19",
      gain=gain,
    )
    for num_rows, gain in ((512, 0.43), (1024, 0.71), (2048, 1.03))
  },
}


MODULES: Mapping[str, cases.Case] = {
  case.module: case
  for case in (
    *(
      _tensor_parallel(
        name, model, num_nodes=num_nodes, num_microbatches=num, num_layers=depth
      )
      for name, model, depth in (
        ("llama-8b", "llama-3-8b", None),
        ("llama-70b-quarter", "llama-3-70b", 20),
      )
      for num_nodes in (1, 8)
      for num in (4, 8)
    ),
    _tensor_parallel(
      "dhellam-demo", "dhellam-demo", num_microbatches=4, microbatch_size=4
    ),
    _tensor_parallel(
      "qwen3-14b", "qwen3-14b", nodes="8xh200", num_microbatches=25,
      microbatch_size=4,
    ),
    _tensor_parallel(
      "gpt-25b", "gpt-25b", nodes="lagom_a", num_nodes=8, num_microbatches=8,
      seq_len=4096,
    ),
    cases.of_example(
      "llama-8b-gspmd-tp-1x8-acc4", "llama", "1x8xh100", mesh="tp:8",
      sequence_parallel="true", accumulate="4", batch_size="4", seq_len="8192",
    ),
    _case(
      "llama-8b-cp-1x8-acc4", "llama-3-8b",
      layout_lib.Layout(kind="cp", model=8), microbatch_size=1,
      num_microbatches=4, seq_len=32768,
    ),
    _experts("olmoe", "olmoe-1b-7b", microbatch_size=2),
    _experts("mixtral-half", "mixtral-8x7b", microbatch_size=1, num_layers=16),
    _experts(
      "qwen3-30b-a3b", "qwen3-30b-a3b", num_nodes=2, num_microbatches=64,
      microbatch_size=1,
    ),
    _case(
      "grug-360b-a23b-fsdp-1x64", "grug-360b-a23b",
      layout_lib.Layout(kind="fsdp", data=64), nodes="64xgb200",
      microbatch_size=8, seq_len=4096,
    ),
    *map(_product_scattered, (512, 1024, 2048)),
  )
}  # fmt: skip
