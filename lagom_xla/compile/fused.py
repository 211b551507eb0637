# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs of jobs: from the beginning, or from a module that another left fused.

Most of a schedule's time is XLA's fusion, which candidates share that differ
only in what comes after it. One of them has XLA write its module down between
fusion and the combiners (`from_the_beginning`); others go on from there, with
XLA's remaining passes named one by one, to the schedule or to the end.

XLA breaks ties by name, and by the order in which it met an instruction's
users. Neither is in a module that was written down, so that names differ, and
of equals another one may come first. What is predicted of a step differs little
by that (`benchmarks/fused.py`), and whoever has to know compiles from the
beginning. Nobody goes on from a module whose schedule, under the options that
it was made with, has other instructions than XLA's from the beginning; whoever
wrote it down looks at that (`prove`). If it ends at its schedule it goes on
from there as well, so that this does not depend on which of them came first.

A step that is short of memory is judged by what runs, with what XLA computes
again, and by its peak of memory. XLA does that to a schedule, whatever the
schedule was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
import contextlib
import dataclasses
import pathlib
import re
from typing import Any

import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import temporary
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import job as job_lib
from lagom_xla.compile import xla
from lagom_xla.jax_internals import request as request_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import hlo_pb2
from lagom_xla.passes import in_compile
from lagom_xla.passes import registry
from lagom_xla.passes.schedule import digest

# Published recipes switch off rematerialization, which runs after the schedule.
# The other chooses tiles of products, which nobody needs without a GPU
# (`compile/deviceless.py`), and no pass up to the schedule reads.
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


def options_after_fusion(
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
      lambda: xla.compile_hlo(cluster, module, proto),
      _NAME,
    )
    names = " ".join(file.name for file in folder.iterdir())
  numbers = map(int, re.findall(rf"{_SHOWS}-(\d+)", names))
  return max(numbers, default=-1)


# Options that no pass reads before the combiners (gpu_compiler.cc). Command
# buffers are made of the thunks of a compiled module.
_OPTIONS = frozenset(
  [
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
# Where one of these is set, passes run or are written down otherwise.
_IN_THE_WAY = ("hlo_pass", "xla_gpu_enable_dynamic_slice_fusion")

# The first pass after fusion; XLA writes down what it gets.
_FIRST = "rename_fusions"
_Module = hlo_pb2.HloModuleProto
_Options = Mapping[str, bool | int | float | str]


def may_share(options: _Options) -> bool:
  """Whether schedules with these XLA options may start from a fused module.

  XLA_FLAGS may ask for dumps: those are the job's.
  """
  early = options_before_fusion(options)
  return not (
    xla.may_name(_IN_THE_WAY, early)
    or any(xla.DUMPS in name and name != xla.DUMPED_MODULES for name in early)
  )


def options_before_fusion(
  options: _Options,
) -> dict[str, bool | int | float | str]:
  """Those of the options that act on fusion, or before it."""
  return {
    name: value
    for name, value in options.items()
    if name not in _OPTIONS and not acts_after_fusion(name, value)
  }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Begun:
  """What a compile from the beginning gave.

  Attributes:
    scheduled: the schedule; None where XLA finished without it.
    fused: the module that others may go on from; None where there is none.
  """

  scheduled: _Module | None
  fused: _Module | None


def from_the_beginning(
  name: str, cluster: cluster_lib.Cluster, request: request_lib.Request
) -> Begun:
  """Schedules, and writes down what others may go on from.

  Args:
    name: of the module.
    cluster: what it is compiled for.
    request: what XLA gets.

  Raises:
    Exception: XLA refused.
  """
  with temporary.folder() as folder:
    writing = request_lib.with_options(
      request, options_to_write(name, folder), None
    )
    scheduled = in_compile.run_to(
      registry.Stage.POST_SCHEDULER,
      lambda: request_lib.compile(writing, devices_lib.devices(cluster)),
      name,
    )
    fused = None if scheduled is None else written(folder)
  return Begun(scheduled=scheduled, fused=fused)


def options_to_write(name: str, folder: pathlib.Path) -> dict[str, bool | str]:
  """XLA options with which a compile writes down its fused module.

  Args:
    name: of the module.
    folder: where to; nothing else is in it.
  """
  return {
    "xla_dump_to": str(folder),
    "xla_dump_hlo_as_proto": True,
    "xla_dump_compress_protos": False,
    "xla_dump_hlo_pass_re": f"^{_FIRST}$",
    xla.DUMPED_MODULES: f"^{re.escape(name)}$",
  }


def written(folder: pathlib.Path) -> _Module | None:
  """The fused module that a compile with these options wrote down.

  Args:
    folder: where it is.

  Returns:
    None where there is not just one.
  """
  files = list(folder.glob(f"*.before_{_FIRST}.hlo.pb"))
  if len(files) != 1:
    return None
  return hlo_pb2.HloProto.FromString(files[0].read_bytes()).hlo_module


def schedule_from_fused(
  fused: _Module, cluster: cluster_lib.Cluster, request: request_lib.Request
) -> _Module | None:
  """What XLA schedules from a fused module.

  Args:
    fused: of `from_the_beginning`.
    cluster: what it is compiled for.
    request: what XLA would get to compile it from the beginning.

  Returns:
    None where XLA finishes without a schedule.

  Raises:
    CompileError: XLA refused.
  """
  options = options_after_fusion(fused, cluster, request)
  serialized = fused.SerializeToString()
  return in_compile.run_to(
    registry.Stage.POST_SCHEDULER,
    lambda: xla.compile_hlo(cluster, serialized, options),
    fused.name,
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proven:
  """A fused module that anybody may go on from.

  Attributes:
    fused: the module.
    scheduled: what XLA schedules from it.
  """

  fused: hlo_pb2.HloModuleProto
  scheduled: hlo_pb2.HloModuleProto


def prove(
  begun: Begun,
  cluster: cluster_lib.Cluster,
  request: request_lib.Request,
) -> Proven | None:
  """Sees whether XLA makes the same of a fused module as of its program.

  Args:
    begun: what a compile from the beginning gave.
    cluster: what it was compiled for.
    request: what XLA got, but for the options that had the module written down.

  Returns:
    None where there is no such module, or XLA makes something else of it.
  """
  if begun.scheduled is None or begun.fused is None:
    return None
  try:
    again = schedule_from_fused(begun.fused, cluster, request)
  except (errors.CompileError, errors.UnsupportedError):
    return None
  if again is None:
    return None
  if digest.of_content(again) != digest.of_content(begun.scheduled):
    return None
  return Proven(fused=begun.fused, scheduled=again)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
  """What a compile to the end gave.

  Attributes:
    scheduled: the module as scheduled, with XLA's estimates.
    runs: the module that runs.
    peak_bytes: device memory at the peak of a step.
  """

  scheduled: hlo_pb2.HloModuleProto
  runs: hlo_pb2.HloModuleProto
  peak_bytes: int


def end_from_fused(
  fused: hlo_pb2.HloModuleProto,
  cluster: cluster_lib.Cluster,
  request: request_lib.Request,
) -> Ended | None:
  """What XLA makes of a fused module, before it generates code.

  Args:
    fused: of `after_fusion.from_the_beginning`.
    cluster: what it is compiled for.
    request: what XLA would get to compile it from the beginning.

  Returns:
    None where XLA shows no schedule on its way.

  Raises:
    Exception: XLA refused.
  """
  shown: list[hlo_pb2.HloModuleProto] = []
  with (
    temporary.folder() as folder,
    in_compile.shown(registry.Stage.POST_SCHEDULER, shown.append, fused.name),
  ):
    ending = request_lib.with_options(
      request, xla.options_before_code(fused.name, folder), None
    )
    serialized = fused.SerializeToString()
    options = options_after_fusion(fused, cluster, ending)
    assigned = xla.until_assigned(
      folder, lambda: xla.compile_hlo(cluster, serialized, options)
    )
  if not shown:
    return None
  xla.take_out_estimates(assigned.module)
  return Ended(
    scheduled=shown[0],
    runs=assigned.module,
    peak_bytes=assigned.peak_bytes,
  )


_Show = Callable[[job_lib.Shown], None]


def run(job: job_lib.Job, show: _Show = lambda _: None) -> job_lib.Result:
  """Compiles a job as far as it asks for.

  Args:
    job: the job.
    show: called with its schedule on the way, if it shows that.

  Raises:
    LagomError: one of our passes refused.
    Exception: XLA refused.
  """
  if job.fused is None:
    return _result_from_the_beginning(job, show)
  fused = hlo_pb2.HloModuleProto.FromString(job.fused)
  # What XLA refuses, it says of a compile from the beginning.
  with contextlib.suppress(errors.CompileError):
    found = _result_from_fused(job, fused, show)
    if found is not None:
      return dataclasses.replace(found, is_from_fused=True)
  return _result_from_the_beginning(job, show)


def _result_from_the_beginning(job: job_lib.Job, show: _Show) -> job_lib.Result:
  if job.stage is None:
    return _to_the_end(job, show)
  if job.leads:
    return _leading(job)
  with in_compile.grouped(job.name, job.groups):
    return _result_of(
      in_compile.run_to(job.stage, lambda: _compile(job, job.request), job.name)
    )


def _leading(job: job_lib.Job) -> job_lib.Result:
  """A schedule that goes on from the fused module as others will, if it may."""
  begun = from_the_beginning(job.name, job.cluster, job.request)
  proven = prove(begun, job.cluster, job.request)
  if proven is None:
    return _result_of(begun.scheduled)
  scheduled = begun.scheduled if job.must_begin else proven.scheduled
  return dataclasses.replace(
    _result_of(scheduled),
    fused=proven.fused.SerializeToString(),
    is_from_fused=not job.must_begin,
  )


def _compile(job: job_lib.Job, request: request_lib.Request) -> Any:
  return request_lib.compile(request, devices_lib.devices(job.cluster))


def _result_of(proto: hlo_pb2.HloModuleProto | None) -> job_lib.Result:
  module = None if proto is None else proto.SerializeToString()
  return job_lib.Result(module=module)


def _result_from_fused(
  job: job_lib.Job, fused: hlo_pb2.HloModuleProto, show: _Show
) -> job_lib.Result | None:
  """What a fused module gives; None where XLA may make something else."""
  if job.stage is not None:
    found = schedule_from_fused(fused, job.cluster, job.request)
    return None if found is None else _result_of(found)
  ended = end_from_fused(fused, job.cluster, job.request)
  if ended is None:
    return None
  if job.shows:
    scheduled = ended.scheduled.SerializeToString()
    show(job_lib.Shown(module=scheduled, is_from_fused=True))
  return job_lib.Result(
    module=ended.runs.SerializeToString(), peak_bytes=ended.peak_bytes
  )


def _to_the_end(job: job_lib.Job, show: _Show) -> job_lib.Result:
  """Compiles as far as there is something to know, whatever it shows."""
  with temporary.folder() as folder:
    with (
      in_compile.grouped(job.name, job.groups, must_keep_donation=True),
      in_compile.reordered(job.name, job.orders),
      _showing(job, show) as schedules,
    ):
      assigned = _assigned(job, folder)
    xla.take_out_estimates(assigned.module)
    result = job_lib.Result(
      module=assigned.module.SerializeToString(),
      peak_bytes=assigned.peak_bytes,
    )
    if not job.leads:
      return result
    begun = Begun(
      scheduled=schedules[0] if schedules else None,
      fused=written(folder),
    )
  proven = prove(begun, job.cluster, job.request)
  if proven is None:
    return result
  return dataclasses.replace(result, fused=proven.fused.SerializeToString())


def _assigned(job: job_lib.Job, folder: pathlib.Path) -> xla.Assigned:
  """The module that runs and its memory, without code where that is enough."""
  request = job.request
  if job.leads:
    writing = options_to_write(job.name, folder)
    request = request_lib.with_options(request, writing, None)
  if job.needs_code:
    return _of_executable(_compile(job, request))
  ending = xla.options_before_code(job.name, folder)
  request = request_lib.with_options(request, ending, None)
  return xla.until_assigned(folder, lambda: _compile(job, request))


@contextlib.contextmanager
def _showing(
  job: job_lib.Job, show: _Show
) -> Iterator[list[hlo_pb2.HloModuleProto]]:
  """Shows a job's schedule, if it is to; gives it, once it is there."""
  schedules: list[hlo_pb2.HloModuleProto] = []
  if not job.shows:
    yield schedules
    return

  def note(module: hlo_pb2.HloModuleProto) -> None:
    if not schedules:
      schedules.append(module)
      show(job_lib.Shown(module=module.SerializeToString()))

  with in_compile.shown(registry.Stage.POST_SCHEDULER, note, job.name):
    yield schedules


def _of_executable(executable: Any) -> xla.Assigned:
  (module,) = executable.hlo_modules()
  serialized = module.as_serialized_hlo_module_proto()
  return xla.Assigned(
    module=hlo_pb2.HloModuleProto.FromString(serialized),
    peak_bytes=xla.peak_bytes(executable.get_compiled_memory_stats()),
  )
