# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs jobs: from the beginning, or from another job's fused module.

Most of the time of a schedule is XLA's fusion, which candidates share if they
differ only in later passes. One of them makes XLA dump its module between
fusion and the combiners (`from_the_beginning`). Others start from that dump,
with XLA's remaining passes listed by name, to the schedule or to the end.

XLA breaks ties by name, and by the order in which it met an instruction's
users. A dump has neither, so names differ and ties may be broken differently,
with hardly any effect on predictions (`benchmarks/schedules.py`). A dump is
used only if its schedule, under the options that it was made with, has the same
instructions as XLA's from the beginning; the job that dumps it checks that
(`proven`). A job to the schedule also uses its own dump, so that results do not
depend on which job came first.
"""

from __future__ import annotations

from collections.abc import Mapping
import contextlib
import dataclasses
import pathlib
import re
from typing import Any

import jax

from lagom_xla import errors
from lagom_xla import processes
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import job as job_lib
from lagom_xla.compile import xla
from lagom_xla.jax_internals import request as request_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import hlo_pb2
from lagom_xla.passes import in_compile
from lagom_xla.passes import registry
from lagom_xla.passes.schedule import digest

_Module = hlo_pb2.HloModuleProto
_Options = Mapping[str, bool | int | float | str | bytes]

# Passes that may be disabled late. Published recipes disable rematerialization,
# which runs after the schedule. The other chooses tiles of products, which are
# not needed without a GPU (`compile/deviceless.py`) and not read by any pass up
# to the schedule.
DISABLE = "xla_disable_hlo_passes"
CONFIGS = "config-assigner"
_REMATERIALIZATION = "rematerialization"

# Shows a module to our passes.
_SHOWS = "apply-xla-transforms"
# Passes after fusion; earlier ones of the same names find nothing to do in a
# fused module. Not computation-deduplicator, which merges computations before
# fusion, and after it only writes names of equal fusions into metadata.
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
# The pipeline around rematerialization; its passes need not be listed.
_REMATERIALIZING = "remat-pipeline"

# XLA of JAX 0.12 numbers the passes that show modules, continuing within a
# process: each compile makes up to three, and so does each product that it
# compiles to choose tiles.
_NUMBERS = jax.__version_info__ >= (0, 12)
_NUMBERED_PER_COMPILE = 4
_SINCE_0_12 = """
  collective-domain-assigner collective-fusion
  constant-fill-copy-rewriter conv-fp8-fallback cse_barrier_expander
  dynamic-slice-copy-fusion-async-wrapper fusion-block-level-rewriter
  gpu-copy-async-wrapper group-collectives-by-key pdl-launch-annotation
""".split()
_BEFORE_0_12 = (_SHOWS, "autotuner")

# A module to compile to find XLA's latest number.
_NAME = "numbering"
_TEXT = f"HloModule {_NAME}\n\nENTRY e {{ ROOT p = f32[] parameter(0) }}\n"

# Options that no pass reads before the combiners (gpu_compiler.cc). Command
# buffers are made of the thunks of a compiled module.
_OPTIONS = frozenset(
  [
    request_lib.PROFILE,
    "xla_gpu_all_gather_combine_threshold_bytes",
    "xla_gpu_all_reduce_combine_threshold_bytes",
    "xla_gpu_collect_cost_model_stats",
    "xla_gpu_enable_analytical_sol_latency_estimator",
    "xla_gpu_enable_command_buffer",
    "xla_gpu_enable_dus_accumulator_zero_init_elimination",
    "xla_gpu_enable_latency_hiding_scheduler",
    "xla_gpu_enable_while_loop_double_buffering",
    "xla_gpu_experimental_collective_start_as_early_as_possible",
    "xla_gpu_experimental_enable_heuristic_collective_combining",
    "xla_gpu_experimental_parallel_collective_overlap_limit",
    "xla_gpu_memory_limit_slop_factor",
    "xla_gpu_reduce_scatter_combine_threshold_bytes",
  ]
)
# Options that change which passes run or what is dumped.
_IN_THE_WAY = ("hlo_pass", "xla_gpu_enable_dynamic_slice_fusion")

# The first pass after fusion; XLA dumps its input.
_FIRST = "rename_fusions"


def may_share(options: _Options) -> bool:
  """Whether schedules with these XLA options may start from a fused module.

  Dumps that XLA_FLAGS ask for do not matter: they are for the training job.
  """
  early = options_before_fusion(options)
  return not (
    xla.may_name(_IN_THE_WAY, early)
    or any(xla.DUMPS in name and name != xla.DUMPED_MODULES for name in early)
  )


def options_before_fusion(options: _Options) -> _Options:
  """The options that act on fusion or before it."""
  late_passes = {_REMATERIALIZATION, CONFIGS}
  return {
    name: value
    for name, value in options.items()
    if name not in _OPTIONS
    and not (name == DISABLE and _names(value) <= late_passes)
  }


def run(job: job_lib.Job) -> job_lib.Result:
  """Compiles a job as far as it asks for; raises errors of XLA and passes."""
  if job.fused is not None:
    # Errors come from a compile from the beginning.
    with contextlib.suppress(errors.CompileError):
      found = _from_fused(job, _Module.FromString(job.fused))
      if found is not None:
        return found
  if job.stage is None:
    return _to_the_end(job)
  if job.leads:
    return _leading(job)
  with in_compile.grouped(job.name, job.groups):
    scheduled = in_compile.run_to(job.stage, lambda: _compile(job), job.name)
  return job_lib.Result(module=_serialized(scheduled))


def _leading(job: job_lib.Job) -> job_lib.Result:
  """A schedule, from the job's own fused module if it is proven."""
  scheduled, fused = from_the_beginning(job)
  again = proven(scheduled, fused, job)
  if again is None:
    return job_lib.Result(module=_serialized(scheduled))
  return job_lib.Result(
    module=_serialized(scheduled if job.must_begin else again),
    fused=_serialized(fused),
    is_from_fused=not job.must_begin,
  )


def _to_the_end(job: job_lib.Job) -> job_lib.Result:
  """Compiles to the end, with code only if needed."""
  shown: list[_Module] = []
  with processes.temporary_folder() as folder:
    with (
      in_compile.grouped(job.name, job.groups, must_keep_donation=True),
      in_compile.reordered(job.name, job.orders),
      in_compile.shown(registry.Stage.POST_SCHEDULER, shown.append, job.name)
      if job.gives_schedule
      else contextlib.nullcontext(),
    ):
      writing = _writing(job, folder) if job.leads else job
      assigned = _assigned(writing, folder)
    fused = _written(folder) if job.leads else None
  xla.take_out_estimates(assigned.module)
  schedule = shown[0] if shown else None
  again = proven(schedule, fused, job)
  return job_lib.Result(
    module=_serialized(assigned.module),
    peak_bytes=assigned.peak_bytes,
    schedule=_serialized(schedule),
    fused=None if again is None else _serialized(fused),
  )


def _assigned(job: job_lib.Job, folder: pathlib.Path) -> xla.Assigned:
  """The module that runs and its memory; generates code only if needed."""
  if job.needs_code:
    return xla.assigned(_compile(job))
  ending = _with(job, xla.options_before_code(job.name, folder))
  return xla.until_assigned(folder, lambda: _compile(ending))


def _from_fused(job: job_lib.Job, fused: _Module) -> job_lib.Result | None:
  """The result from a fused module; None if XLA finishes without one."""
  if job.stage is not None:
    scheduled = schedule_from_fused(fused, job)
    if scheduled is None:
      return None
    return job_lib.Result(module=_serialized(scheduled), is_from_fused=True)
  ended = end_from_fused(fused, job)
  if ended is None:
    return None
  scheduled, assigned = ended
  return job_lib.Result(
    module=_serialized(assigned.module),
    peak_bytes=assigned.peak_bytes,
    schedule=_serialized(scheduled),
    is_from_fused=True,
  )


def from_the_beginning(
  job: job_lib.Job,
) -> tuple[_Module | None, _Module | None]:
  """A schedule, and the fused module for other jobs; None if missing.

  Raises whatever XLA raises.
  """
  with processes.temporary_folder() as folder:
    writing = _writing(job, folder)
    scheduled = in_compile.run_to(
      registry.Stage.POST_SCHEDULER, lambda: _compile(writing), job.name
    )
    return scheduled, _written(folder)


def proven(
  scheduled: _Module | None, fused: _Module | None, job: job_lib.Job
) -> _Module | None:
  """The schedule from a fused module, if it equals that from the beginning.

  None if it differs, or if the job's schedule or its fused module is missing.
  """
  if scheduled is None or fused is None:
    return None
  try:
    again = schedule_from_fused(fused, job)
  except (errors.CompileError, errors.UnsupportedError):
    return None
  if again is None or digest.of_content(again) != digest.of_content(scheduled):
    return None
  return again


def schedule_from_fused(fused: _Module, job: job_lib.Job) -> _Module | None:
  """XLA's schedule from a fused module of a job's program.

  None if XLA finishes without a schedule; raises a CompileError if it fails.
  """
  options = _options_after_fusion(fused, job)
  serialized = fused.SerializeToString()
  return in_compile.run_to(
    registry.Stage.POST_SCHEDULER,
    lambda: xla.compile_hlo(job.cluster, serialized, options),
    fused.name,
  )


def end_from_fused(
  fused: _Module, job: job_lib.Job
) -> tuple[_Module, xla.Assigned] | None:
  """Compiles a fused module to the end, except for code generation.

  Returns the schedule, with XLA's estimates, and the module that runs; None if
  XLA finishes without a schedule. Raises whatever XLA raises.
  """
  shown: list[_Module] = []
  with (
    processes.temporary_folder() as folder,
    in_compile.shown(registry.Stage.POST_SCHEDULER, shown.append, fused.name),
  ):
    ending = _with(job, xla.options_before_code(fused.name, folder))
    serialized = fused.SerializeToString()
    options = _options_after_fusion(fused, ending)
    assigned = xla.until_assigned(
      folder, lambda: xla.compile_hlo(job.cluster, serialized, options)
    )
  if not shown:
    return None
  xla.take_out_estimates(assigned.module)
  return shown[0], assigned


def _with(job: job_lib.Job, options: Mapping[str, bool | str]) -> job_lib.Job:
  """A job with more XLA options."""
  request = request_lib.with_options(job.request, options)
  return dataclasses.replace(job, request=request)


def _writing(job: job_lib.Job, folder: pathlib.Path) -> job_lib.Job:
  """A job that dumps its fused module to a folder."""
  first = {"xla_dump_hlo_pass_re": f"^{_FIRST}$"}
  return _with(job, {**xla.options_to_dump(job.name, folder), **first})


def _written(folder: pathlib.Path) -> _Module | None:
  """The fused module that a compile dumped; None unless there is just one."""
  files = list(folder.glob(f"*.before_{_FIRST}.hlo.pb"))
  if len(files) != 1:
    return None
  return hlo_pb2.HloProto.FromString(files[0].read_bytes()).hlo_module


def _compile(job: job_lib.Job) -> Any:
  return request_lib.compile(job.request, devices_lib.devices(job.cluster))


def _serialized(module: _Module | None) -> bytes | None:
  return None if module is None else module.SerializeToString()


def _options_after_fusion(fused: _Module, job: job_lib.Job) -> bytes:
  """A CompileOptionsProto for XLA's remaining passes on a fused module."""
  disabled = _names(dict(job.request.overrides).get(DISABLE, ""))
  passes = list(_PASSES)
  if _REMATERIALIZATION not in disabled:
    passes.append(_REMATERIALIZING)
  if not _NUMBERS:
    passes += _BEFORE_0_12
  else:
    num_compiles = 1
    if CONFIGS not in disabled:
      passes.append(CONFIGS)
      num_compiles += sum(
        instruction.opcode == "fusion"
        for computation in fused.computations
        for instruction in computation.instructions
      )
    # Passes that show modules may have any of the next numbers.
    last = _last_number(job)
    numbers = range(last + 1, last + 1 + _NUMBERED_PER_COMPILE * num_compiles)
    passes += [*_SINCE_0_12, *(f"{_SHOWS}-{number}" for number in numbers)]
  # XLA accepts either enabled or disabled passes.
  only = {"xla_enable_hlo_passes_only": ",".join(passes), DISABLE: ""}
  return request_lib.options_for_partitioned(_with(job, only).request)


def _names(value: object) -> frozenset[str]:
  return frozenset(filter(None, str(value).split(",")))


def _last_number(job: job_lib.Job) -> int:
  """The number of the latest pass that shows modules, by an empty compile."""
  module = hlo.load(_TEXT).proto.SerializeToString()
  with processes.temporary_folder() as folder:
    shows = {"xla_dump_hlo_pass_re": f"^{_SHOWS}"}
    writing = _with(job, {**xla.options_to_dump(_NAME, folder), **shows})
    options = request_lib.options_for_partitioned(writing.request)
    in_compile.run_to(
      registry.Stage.POST_SCHEDULER,
      lambda: xla.compile_hlo(job.cluster, module, options),
      _NAME,
    )
    names = " ".join(file.name for file in folder.iterdir())
  numbers = map(int, re.findall(rf"{_SHOWS}-(\d+)", names))
  return max(numbers, default=-1)
