# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Recipes: published XLA_FLAGS for training on GPUs, as data.

Each is a copy of its source, for comparison line by line, without dump paths.
`as_options` fits one to the installed jaxlib.
"""

from __future__ import annotations

import dataclasses

from lagom_xla.flags import debug_options
from lagom_xla.flags import options as xla_options
from lagom_xla.flags import syntax


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
  """Published XLA_FLAGS.

  Attributes:
    name: its name in reports.
    flags: as XLA_FLAGS has them.
    source: repository, file and commit.
    date: of the commit that last changed the file, YYYY-MM-DD.
    num_nodes: nodes of eight GPUs that it is for; None for any number.
  """

  name: str
  flags: str
  source: str
  date: str
  num_nodes: int | None = None


def _maxtext(
  num_nodes: int, *, all_reduce_mib: int, reduce_scatter_mib: int
) -> Recipe:
  """One of MaxText's scripts for A3 machines, which share all but two values.

  The script for Llama 3.1 405B on 128 nodes equals the one for 16 nodes.
  """
  return Recipe(
    name="MaxText",
    flags=f"""
--xla_gpu_enable_latency_hiding_scheduler=true
--xla_gpu_enable_triton_gemm=false
--xla_gpu_enable_command_buffer=''
--xla_gpu_enable_highest_priority_async_stream=true
--xla_gpu_all_reduce_combine_threshold_bytes={all_reduce_mib * 2**20}
--xla_gpu_all_gather_combine_threshold_bytes=134217728
--xla_gpu_reduce_scatter_combine_threshold_bytes={reduce_scatter_mib * 2**20}
--xla_gpu_pipeline_all_gather=on
--xla_gpu_pipeline_reduce_scatter=on
--xla_gpu_pipeline_all_reduce=on
--xla_gpu_enable_while_loop_double_buffering=true
--xla_gpu_enable_all_gather_combine_by_dim=false
--xla_gpu_enable_reduce_scatter_combine_by_dim=false
--xla_disable_hlo_passes=rematerialization
""",
    source="AI-Hypercomputer/maxtext,"
    f" src/maxtext/configs/gpu/a3/llama_2_7b/{num_nodes}vm.sh at 834e861",
    date="2026-08-06",
    num_nodes=num_nodes,
  )


RECIPES: tuple[Recipe, ...] = (
  _maxtext(1, all_reduce_mib=128, reduce_scatter_mib=64),
  _maxtext(2, all_reduce_mib=64, reduce_scatter_mib=64),
  _maxtext(4, all_reduce_mib=512, reduce_scatter_mib=64),
  _maxtext(8, all_reduce_mib=1024, reduce_scatter_mib=64),
  _maxtext(16, all_reduce_mib=1024, reduce_scatter_mib=128),
  Recipe(
    name="JAX-Toolbox for MaxText",
    flags="""
--xla_gpu_enable_latency_hiding_scheduler=true
--xla_gpu_enable_command_buffer=
--xla_gpu_all_reduce_combine_threshold_bytes=1073741824
--xla_gpu_all_gather_combine_threshold_bytes=1073741824
--xla_gpu_reduce_scatter_combine_threshold_bytes=134217728
--xla_gpu_enable_pipelined_all_gather=true
--xla_gpu_enable_pipelined_reduce_scatter=true
--xla_gpu_enable_pipelined_all_reduce=true
--xla_gpu_enable_while_loop_double_buffering=true
--xla_gpu_enable_all_gather_combine_by_dim=false
--xla_gpu_enable_reduce_scatter_combine_by_dim=false
--xla_disable_hlo_passes=rematerialization
""",
    source="NVIDIA/JAX-Toolbox, docs/frameworks/maxtext/README.md at d29fd15",
    date="2026-07-07",
  ),
  Recipe(
    name="JAX-Toolbox, GPU performance",
    flags="""
--xla_gpu_enable_latency_hiding_scheduler=true
--xla_gpu_enable_pipelined_all_reduce=true
--xla_gpu_enable_pipelined_all_gather=true
--xla_gpu_enable_pipelined_reduce_scatter=true
--xla_gpu_enable_while_loop_double_buffering=true
--xla_gpu_all_gather_combine_threshold_bytes=8589934592
--xla_gpu_reduce_scatter_combine_threshold_bytes=8589934592
--xla_gpu_all_reduce_combine_threshold_bytes=8589934592
--xla_gpu_enable_nccl_comm_splitting=true
--xla_gpu_enable_nccl_per_stream_comms=false
--xla_gpu_enable_custom_fusions=true
--xla_gpu_enable_address_computation_fusion=true
""",
    source="NVIDIA/JAX-Toolbox, docs/GPU_performance.md at d29fd15: what it"
    " names for overlap, thresholds and copies",
    date="2026-07-07",
  ),
)


def for_nodes(num_nodes: int) -> tuple[Recipe, ...]:
  """The recipes for a cluster, one per name.

  If a recipe comes in several sizes, it is the largest that fits the cluster.
  """
  found: dict[str, Recipe] = {}
  for recipe in RECIPES:
    if recipe.num_nodes is None or recipe.num_nodes <= num_nodes:
      found[recipe.name] = recipe
  return tuple(found.values())


def as_options(recipe: Recipe) -> xla_options.Fitted:
  """What a recipe sets in the installed jaxlib, without its defaults."""
  flags, _ = syntax.parse(recipe.flags)
  fitted = xla_options.fit(
    {flag.name: "true" if flag.value is None else flag.value for flag in flags}
  )
  return xla_options.Fitted(
    options=debug_options.without_defaults(fitted.options),
    messages=fitted.messages,
  )
