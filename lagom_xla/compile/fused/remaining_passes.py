# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The passes that XLA has still to run on a fused module, by their names."""

from __future__ import annotations

import re

import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla import temporary
from lagom_xla.compile.xla import pjrt_compile
from lagom_xla.jax_internals import request as request_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import hlo_pb2
from lagom_xla.passes import in_compile
from lagom_xla.passes import registry

# Published recipes switch off rematerialization, which runs after the schedule.
# The other chooses tiles of products, which nobody needs without a GPU
# (`compile/runs/deviceless.py`), and no pass up to the schedule reads.
DISABLE = "xla_disable_hlo_passes"
CONFIGS = "config-assigner"
_REMATERIALIZATION = "rematerialization"

# Shows a module to passes of ours.
_SHOWS = "apply-xla-transforms"
# What runs after fusion; passes of the same names before it find nothing to do
# in a fused module. Not computation-deduplicator: before fusion it merges
# computations, after it all it does is to write names of equal fusions into
# metadata.
_PASSES = """
  algsimp all-reduce-contiguous async-collective-annotator
  async-collective-creator async-stream-attribute-wrapper
  async-to-sync-converter collective-backend-assigner
  collective-combiner-annotator collective-kernel-strategy-annotator
  collective-permute-combiner collectives-schedule-linearizer
  convert_triton_gemm_config copy-insertion copy_fusion cublas-gemm-rewriter
  dce dot-algorithm-rewriter dus-accumulator-zero-init-elimination
  explicit-collectives-group-async-wrapper
  explicit-stream-annotation-async-wrapper fusion-dispatch-pipeline
  fusion-wrapper gpu-all-gather-combiner gpu-all-reduce-combiner
  gpu-convert-async-collectives-to-sync gpu-reduce-scatter-combiner
  gpu_cost_model_stats_collection latency-hiding-scheduler
  legalize-scheduling-annotations loop-double-buffer-transformer
  loop-schedule-linearizer propagate-call-metadata rename_fusions
  sanitize-constant-names scalar-constant-sinker scaled-dot-rewriter
  scheduling-instruction-annotator simplify-while-loops
  sol-gpu-cost-model-stats-collection stream-attribute-annotator
  tuple-simplifier
""".split()
# The pipeline around rematerialization; what is in it is not asked for by name.
_REMATERIALIZING = "remat-pipeline"

# XLA of JAX 0.12 numbers the passes that show modules, on and on within a
# process: each compile makes up to three, and so does each product whose tiles
# it chooses, which it compiles on its own.
_NUMBERS = jax.__version_info__ >= (0, 12)
_NUMBERED_PER_COMPILE = 4
_SINCE_0_12 = """
  collective-domain-assigner collective-fusion
  constant-fill-copy-rewriter conv-fp8-fallback cse_barrier_expander
  dynamic-slice-copy-fusion-async-wrapper fusion-block-level-rewriter
  gpu-copy-async-wrapper group-collectives-by-key pdl-launch-annotation
""".split()
_BEFORE_0_12 = (_SHOWS, "autotuner")

# What is compiled to see how far XLA has counted.
_NAME = "numbering"
_TEXT = f"HloModule {_NAME}\n\nENTRY e {{ ROOT p = f32[] parameter(0) }}\n"


def options(
  fused: hlo_pb2.HloModuleProto,
  cluster: cluster_lib.Cluster,
  request: request_lib.Request,
) -> bytes:
  """A CompileOptionsProto for what XLA has still to do to a fused module.

  Args:
    fused: the module, which is compiled next in this process.
    cluster: what for.
    request: what XLA would get to compile it from the beginning.

  Raises:
    CompileError: XLA refused.
  """
  disabled = _names(dict(request.overrides).get(DISABLE, ""))
  passes = list(_PASSES)
  if _REMATERIALIZATION not in disabled:
    passes.append(_REMATERIALIZING)
  if not _NUMBERS:
    passes += _BEFORE_0_12
  else:
    num_compiles = 1
    if CONFIGS not in disabled:
      passes.append(CONFIGS)
      num_compiles += _num_fusions(fused)
    passes += [*_SINCE_0_12, *_numbered(num_compiles, cluster, request)]
  # XLA takes passes that are on or passes that are off.
  only = {"xla_enable_hlo_passes_only": ",".join(passes), DISABLE: ""}
  return request_lib.options_for_partitioned(
    request_lib.with_options(request, only, None)
  )


def acts_after_fusion(name: str, value: object) -> bool:
  """Whether an option disables passes after fusion, and no other."""
  return name == DISABLE and _names(value) <= {_REMATERIALIZATION, CONFIGS}


def _names(value: object) -> frozenset[str]:
  return frozenset(filter(None, str(value).split(",")))


def _num_fusions(module: hlo_pb2.HloModuleProto) -> int:
  return sum(
    instruction.opcode == "fusion"
    for computation in module.computations
    for instruction in computation.instructions
  )


def _numbered(
  num_compiles: int,
  cluster: cluster_lib.Cluster,
  request: request_lib.Request,
) -> list[str]:
  """Names that the passes which show a module may have in the next compiles."""
  last = _last_number(cluster, request)
  numbers = range(last + 1, last + 1 + _NUMBERED_PER_COMPILE * num_compiles)
  return [f"{_SHOWS}-{number}" for number in numbers]


def _last_number(
  cluster: cluster_lib.Cluster, request: request_lib.Request
) -> int:
  """The number of the last such pass, as a module of nothing has it."""
  module = hlo.load(_TEXT).proto.SerializeToString()
  with temporary.folder() as folder:
    writing = request_lib.with_options(
      request,
      {
        "xla_dump_to": str(folder),
        "xla_dump_hlo_as_proto": True,
        "xla_dump_hlo_pass_re": f"^{_SHOWS}",
        "xla_dump_hlo_module_re": f"^{_NAME}$",
      },
      None,
    )
    proto = request_lib.options_for_partitioned(writing)
    in_compile.run_to(
      registry.Stage.POST_SCHEDULER,
      lambda: pjrt_compile.compile_hlo(cluster, module, proto),
      _NAME,
    )
    names = " ".join(file.name for file in folder.iterdir())
  numbers = map(int, re.findall(rf"{_SHOWS}-(\d+)", names))
  return max(numbers, default=-1)
