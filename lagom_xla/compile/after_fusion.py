# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Schedules that start from a fused module: XLA's passes after fusion, alone.

Most of a schedule's time is XLA's fusion, which candidates share that differ
only in what comes after it. `fused_module` has XLA write the module down
between fusion and the combiners; `schedule` goes on from there.

XLA breaks ties by name, and names by counting: `used_names.py` has it count
from where it was. A fused module is only of use if what is scheduled from it is
what XLA schedules from the beginning, name by name; that is checked first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
import os
import pathlib
import re
import tempfile

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import _jax_request
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import pjrt_compile
from lagom_xla.compile import used_names
from lagom_xla.passes import hlo_pb2
from lagom_xla.passes import in_compile
from lagom_xla.passes import registry

# Options that no pass reads before the combiners (gpu_compiler.cc). Of these
# double buffering would be one; but it copies instructions of all kinds, whose
# names the schedule that is checked does not tell.
_OPTIONS = frozenset(
  [
    "xla_gpu_all_gather_combine_threshold_bytes",
    "xla_gpu_all_reduce_combine_threshold_bytes",
    "xla_gpu_collect_cost_model_stats",
    "xla_gpu_enable_latency_hiding_scheduler",
    "xla_gpu_experimental_collective_start_as_early_as_possible",
    "xla_gpu_experimental_enable_heuristic_collective_combining",
    "xla_gpu_experimental_parallel_collective_overlap_limit",
    "xla_gpu_memory_limit_slop_factor",
    "xla_gpu_reduce_scatter_combine_threshold_bytes",
  ]
)
# Where one of these is set, passes run or are written down otherwise.
_IN_THE_WAY = ("xla_dump_", "hlo_pass", "xla_gpu_enable_dynamic_slice_fusion")

# The first pass after fusion; XLA writes down what it gets.
_FIRST = "rename_fusions"
# What runs after fusion; passes of the same names before it find nothing to do
# in a fused module. Not computation-deduplicator: before fusion it merges
# computations, after it all it does is to write names of equal fusions into
# metadata.
_PASSES = """
  algsimp all-reduce-contiguous apply-xla-transforms
  async-collective-annotator async-collective-creator
  async-stream-attribute-wrapper autotuner collective-backend-assigner
  collective-combiner-annotator collective-kernel-strategy-annotator
  collective-permute-combiner collectives-schedule-linearizer
  convert_triton_gemm_config copy-insertion copy_fusion cublas-gemm-rewriter
  dce dot-algorithm-rewriter dus-accumulator-zero-init-elimination
  explicit-collectives-group-async-wrapper
  explicit-stream-annotation-async-wrapper fusion-wrapper
  gpu-all-gather-combiner gpu-all-reduce-combiner
  gpu-convert-async-collectives-to-sync gpu-reduce-scatter-combiner
  gpu_cost_model_stats_collection latency-hiding-scheduler
  legalize-scheduling-annotations loop-double-buffer-transformer
  loop-schedule-linearizer propagate-call-metadata rename_fusions
  sanitize-constant-names scalar-constant-sinker scaled-dot-rewriter
  scheduling-instruction-annotator simplify-while-loops
  sol-gpu-cost-model-stats-collection stream-attribute-annotator
  tuple-simplifier
""".split()

_Module = hlo_pb2.HloModuleProto
_Options = Mapping[str, bool | int | float | str]


def is_possible(options: Iterable[str]) -> bool:
  """Whether schedules with these XLA options may start from a fused module."""
  flags = os.environ.get("XLA_FLAGS", "").strip()
  if flags and not flags.startswith("--"):
    return False  # They are in a file.
  set_anywhere = [*options, flags]
  return not any(word in text for word in _IN_THE_WAY for text in set_anywhere)


def before(options: _Options) -> dict[str, bool | int | float | str]:
  """Those of the options that act on fusion, or before it."""
  return {name: v for name, v in options.items() if name not in _OPTIONS}


def fused_module(
  name: str, cluster: cluster_lib.Cluster, request: _jax_request.Request
) -> _Module | None:
  """The module after fusion, which `schedule` goes on from.

  Args:
    name: of the module.
    cluster: what it is compiled for.
    request: what XLA gets; its options are those of `before`.

  Returns:
    None where this XLA cannot go on from there as if it had not stopped.

  Raises:
    Exception: XLA refused.
  """
  with tempfile.TemporaryDirectory() as folder:
    dumping = {
      "xla_dump_to": folder,
      "xla_dump_hlo_as_proto": True,
      "xla_dump_hlo_pass_re": f"^{_FIRST}$",
      "xla_dump_hlo_module_re": f"^{re.escape(name)}$",
    }
    dumped = _jax_request.with_options(request, dumping, None)
    expected = in_compile.run_to(
      registry.Stage.POST_SCHEDULER,
      lambda: _jax_request.compile(dumped, devices_lib.devices(cluster)),
      name,
    )
    files = list(pathlib.Path(folder).glob(f"*.before_{_FIRST}.hlo.pb"))
    if expected is None or len(files) != 1:
      return None
    fused = hlo_pb2.HloProto.FromString(files[0].read_bytes()).hlo_module
  try:
    return _as_if_never_stopped(fused, expected, cluster, request)
  except (errors.CompileError, errors.UnsupportedError):
    return None


def schedule(
  fused: _Module, cluster: cluster_lib.Cluster, request: _jax_request.Request
) -> _Module | None:
  """What XLA schedules from a fused module.

  Args:
    fused: of `fused_module`.
    cluster: what it is compiled for.
    request: what XLA would get to compile it from the beginning.

  Returns:
    None where XLA finished without it.

  Raises:
    CompileError: XLA refused.
  """
  only = {"xla_enable_hlo_passes_only": ",".join(_PASSES)}
  options = _jax_request.options_for_partitioned(
    _jax_request.with_options(request, only, None)
  )
  serialized = fused.SerializeToString()
  return in_compile.run_to(
    registry.Stage.POST_SCHEDULER,
    lambda: pjrt_compile.compile_hlo(cluster, serialized, options),
    fused.name,
  )


def _as_if_never_stopped(
  fused: _Module,
  expected: _Module,
  cluster: cluster_lib.Cluster,
  request: _jax_request.Request,
) -> _Module | None:
  """The fused module with names used up; None where schedules differ."""
  first = used_names.first_new(fused, expected)
  used_up = used_names.with_used(fused, first)
  got = schedule(used_up, cluster, request)
  if got is None or not used_names.are_alike(expected, got):
    return None
  # Names that were new, and gone again before the schedule, count as well.
  first = used_names.shifted(first, fused, expected, got)
  used_up = used_names.with_used(fused, first)
  got = schedule(used_up, cluster, request)
  if got is None or not used_names.are_equal(expected, got):
    return None
  return used_up
