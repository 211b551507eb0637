# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A profile: a scheduled module joined to the trace of its run.

    profiled = profile.read(folder)
    profiled.lone_us["loop_fusion.3"]

Names that end in _us are times in microseconds.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
import dataclasses
import functools
import pathlib
import statistics
from typing import TypeVar

from lagom_xla import errors
from lagom_xla.costs import measured as measured_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.profiling import events as events_lib
from lagom_xla.profiling import instances as instances_lib
from lagom_xla.profiling import steps as steps_lib
from lagom_xla.profiling import trace as trace_lib
from lagom_xla.profiling import xspace

# A collective overlaps a kernel fully if it runs for this share of its time.
COVERED = 0.95


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Profile:
  """A step's module with its trace.

  Attributes:
    trace: the trace of the run.
    analysis: the analysis of the module.
    steps: the steps of all devices, on one clock.
    offsets_us: offset added to each process's times to align the clocks.
  """

  trace: trace_lib.Trace
  analysis: overlap_lib.Analysis
  steps: Sequence[steps_lib.DeviceStep]
  offsets_us: Sequence[float]

  @functools.cached_property
  def kernels(self) -> Mapping[str, kernels_lib.Kernel]:
    """The module's kernels, by name."""
    return {k.name: k for k in self.analysis.kernels.values()}

  @functools.cached_property
  def collectives(self) -> Mapping[str, collectives_lib.Collective]:
    """The module's collectives, by name."""
    return {c.name: c for c in self.analysis.collectives}

  @functools.cached_property
  def whole_steps(self) -> Sequence[steps_lib.DeviceStep]:
    """The complete steps."""
    return [step for step in self.steps if step.is_whole]

  @functools.cached_property
  def step_time_us(self) -> float:
    """The median time of a step, over all devices."""
    return statistics.median(s.end_us - s.begin_us for s in self.whole_steps)

  @functools.cached_property
  def instances(self) -> Sequence[instances_lib.Instance]:
    """The collectives of all steps, matched across ranks."""
    return instances_lib.of_steps(
      self.steps,
      self.collectives,
      collectives_lib.num_devices(self.analysis.module),
    )

  @functools.cached_property
  def kernel_runs(self) -> Sequence[events_lib.KernelRun]:
    """The runs of all kernels."""
    return [
      run
      for step in self.steps
      for run in events_lib.kernel_runs(step.kernels, step.collectives)
    ]

  @functools.cached_property
  def lone_us(self) -> Mapping[str, Sequence[float]]:
    """The lone times of each kernel, by name."""
    times = collections.defaultdict(list)
    for run in self.kernel_runs:
      if run.is_lone:
        times[run.name].append(run.time_us)
    return times

  @functools.cached_property
  def kernel_us(self) -> Mapping[str, float]:
    """The median lone time of each kernel, by name."""
    return _medians(self.lone_us)

  @functools.cached_property
  def work_us(self) -> Mapping[measured_lib.Work, float]:
    """The median lone time of kernels of equal work, by work."""
    times = collections.defaultdict(list)
    for name, lone_us in self.lone_us.items():
      times[measured_lib.work_of(self.kernels[name])] += lone_us
    return _medians(times)

  @functools.cached_property
  def own_us(self) -> Mapping[str, float]:
    """The median time of each collective without rank waits, by name."""
    times = collections.defaultdict(list)
    for instance in self.instances:
      times[instance.name].append(instance.own_us)
    return _medians(times)

  @functools.cached_property
  def instruction_us(self) -> Mapping[str, float]:
    """The median time of one run of each instruction that ran, by name.

    Kernels count alone, without a collective beside them, if possible.
    Collectives count without waits for ranks.
    """
    times = collections.defaultdict(list)
    for run in self.kernel_runs:
      times[run.name].append(run.time_us)
    return {**_medians(times), **self.kernel_us, **self.own_us}

  @functools.cached_property
  def num_channels(self) -> Mapping[str, int]:
    """The number of NCCL channels of each collective, if known."""
    found = collections.defaultdict(list)
    for step in self.steps:
      for run in step.collectives:
        if run.num_blocks is not None:
          found[run.name].append(run.num_blocks)
    return {name: statistics.mode(num) for name, num in found.items()}

  @functools.cached_property
  def gap_us(self) -> float | None:
    """The median time between one kernel's end and the next kernel's start.

    None if no two kernels follow each other.
    """
    gaps = [
      max(run.gap_us, 0.0) for run in self.kernel_runs if run.gap_us is not None
    ]
    return statistics.median(gaps) if gaps else None


_T = TypeVar("_T")


def _medians(times: Mapping[_T, Sequence[float]]) -> dict[_T, float]:
  return {key: statistics.median(us) for key, us in times.items()}


def read(
  source: str | pathlib.Path | Mapping[str, bytes],
  module: hlo.Module | None = None,
) -> Profile:
  """Reads jax.profiler's trace of a run.

  Args:
    source: the folder of the trace, or one XSpace file; or XSpaces in memory,
      by process name.
    module: the step's scheduled module; None for the module in the trace.

  Raises:
    TraceError: there is no trace, or it is of another step.
    HloError: the trace's module is damaged.
  """
  if isinstance(source, Mapping):
    return of_trace(xspace.of_bytes(source), module)
  return of_trace(xspace.read(pathlib.Path(source)), module)


def instruction_us(
  source: str | pathlib.Path | Mapping[str, bytes],
  module: hlo.Module | None = None,
) -> Mapping[str, float]:
  """The time of one run of each instruction, by name, in microseconds.

  Arguments and errors are those of `read`.
  """
  return read(source, module).instruction_us


def of_trace(
  trace: trace_lib.Trace, module: hlo.Module | None = None
) -> Profile:
  """Joins a trace to the module that ran.

  Args:
    trace: the trace of a run. If several programs ran, the step is the one with
      the longest total time.
    module: the step's scheduled module; None for the module in the trace.

  Raises:
    TraceError: the trace has no module, or the module is of another step.
    HloError: the trace's module is damaged.
  """
  programs, module = steps_lib.programs_of(trace, module)
  analysis = overlap_lib.analyze(module)
  is_cpu = trace.platform == "CPU"
  of_platform = steps_lib.of_cpus if is_cpu else steps_lib.of_gpus
  steps = of_platform(trace, programs, analysis)
  if not steps:
    raise errors.TraceError(
      f"The trace has only collectives or copies of {module.name}, no kernels:"
      " trace complete steps."
    )
  steps, offsets_us = instances_lib.on_one_clock(trace, steps)
  return Profile(
    trace=trace, analysis=analysis, steps=steps, offsets_us=offsets_us
  )
