# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Schedules that start from a fused module: XLA's passes after fusion, alone.

Most of a schedule's time is XLA's fusion, which candidates share that differ
only in what comes after it. One of them has XLA write its module down between
fusion and the combiners (`from_the_beginning`); others go on from there
(`from_fused`).

XLA breaks ties by name, and by the order in which it met an instruction's
users. Neither is in a module that was written down, so that names differ, and
of equals another one may come first. What is predicted of a step differs little
by that (`benchmarks/fused.py`), and whoever has to know compiles from the
beginning. Nobody goes on from a module whose schedule, under the options that
it was made with, has other instructions than XLA's from the beginning; whoever
wrote it down looks at that (`proof.py`). If it ends at its schedule it goes on
from there as well, so that this does not depend on which of them came first.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import pathlib
import re

from lagom_xla import cluster as cluster_lib
from lagom_xla import temporary
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile.fused import remaining_passes
from lagom_xla.compile.xla import options_set
from lagom_xla.compile.xla import pjrt_compile
from lagom_xla.jax_internals import request as request_lib
from lagom_xla.passes import hlo_pb2
from lagom_xla.passes import in_compile
from lagom_xla.passes import registry

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


def is_possible(options: _Options) -> bool:
  """Whether schedules with these XLA options may start from a fused module.

  XLA_FLAGS may ask for dumps: those are the job's.
  """
  early = before(options)
  return not (
    options_set.may_name(_IN_THE_WAY, early)
    or any(
      options_set.DUMPS in name and name != options_set.DUMPED_MODULES
      for name in early
    )
  )


def before(options: _Options) -> dict[str, bool | int | float | str]:
  """Those of the options that act on fusion, or before it."""
  return {
    name: value
    for name, value in options.items()
    if name not in _OPTIONS
    and not remaining_passes.acts_after_fusion(name, value)
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
    writing = request_lib.with_options(request, options(name, folder), None)
    scheduled = in_compile.run_to(
      registry.Stage.POST_SCHEDULER,
      lambda: request_lib.compile(writing, devices_lib.devices(cluster)),
      name,
    )
    fused = None if scheduled is None else written(folder)
  return Begun(scheduled=scheduled, fused=fused)


def options(name: str, folder: pathlib.Path) -> dict[str, bool | str]:
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
    options_set.DUMPED_MODULES: f"^{re.escape(name)}$",
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


def from_fused(
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
  options = remaining_passes.options(fused, cluster, request)
  serialized = fused.SerializeToString()
  return in_compile.run_to(
    registry.Stage.POST_SCHEDULER,
    lambda: pjrt_compile.compile_hlo(cluster, serialized, options),
    fused.name,
  )
