# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Traces of real steps: what ran when, alone or beside which collective.

A folder holds the scheduled module of a step, the GPU that it ran on, and when
each of its operations ran, and for how long, on some of the GPUs: what nsys-jax
makes of a trace of Nsight Systems (NVIDIA/JAX-Toolbox; `pax_a100` and
`maxtext_h100` are of its test data).

    *gpu_after_optimizations.hlo.pb.xz   the module
    *gpu_target_config.pbtxt.xz          the GPU, by its description
    rank*.csv.xz                         step, hlo_op, start_ns, duration_ns

A kernel's time says what the kernel costs only where no collective ran at the
same time: there it is lone. Where one did, the trace shows what the collective
cost the kernel.
"""

from __future__ import annotations

import collections
from collections.abc import Container, Iterator, Mapping, Sequence
import csv
import dataclasses
import lzma
import pathlib
import re

from lagom_xla import cluster as cluster_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo

# Steps 0 and 1 warm up.
_FIRST_STEADY_STEP = 2
_MODULE = "*gpu_after_optimizations.hlo.pb.xz"
_RANKS = "rank*.csv.xz"
_DEVICE = re.compile(r'^device_description_str: "(.*)"$', re.MULTILINE)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Event:
  """One operation as it ran once; times count from the start of the trace."""

  name: str
  begin_us: float
  end_us: float

  @property
  def time_us(self) -> float:
    """How long it ran."""
    return self.end_us - self.begin_us


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class KernelRun:
  """A kernel as it ran once.

  Attributes:
    name: the kernel's.
    gap_us: from its end to the next kernel's start, below 0 where they overlap;
      None for the last kernel of a step.
    collective: the collective that ran for most of its time.
    share: of its time that the collective ran, 0 to 1.
  """

  name: str
  time_us: float
  gap_us: float | None
  collective: str
  share: float

  @property
  def is_lone(self) -> bool:
    """Whether it ran beside no collective."""
    return not self.share


def is_of_step(folder: pathlib.Path) -> bool:
  """Whether a folder has a step's module and when it ran."""
  return all(any(folder.glob(pattern)) for pattern in (_MODULE, _RANKS))


def module(folder: pathlib.Path) -> hlo.Module:
  """The step's scheduled module."""
  (path,) = folder.glob(_MODULE)
  return hlo.load(path)


def cluster(folder: pathlib.Path, traced: hlo.Module) -> cluster_lib.Cluster:
  """The one node that the step ran on.

  Args:
    folder: of the step.
    traced: its module, which says over how many GPUs it ran.

  Raises:
    ValueError: no known GPU is called what the folder says.
  """
  (path,) = folder.glob("*gpu_target_config.pbtxt.xz")
  text = lzma.decompress(path.read_bytes()).decode("utf-8")
  (device_name,) = _DEVICE.findall(text)
  num_gpus = collectives_lib.num_devices(traced) or 1
  for name in cluster_lib.gpu_names():
    found = cluster_lib.parse(f"1x{num_gpus}x{name}")
    if found.gpu.device_name == device_name:
      return found
  raise ValueError(f"{path}: no GPU that is known is a {device_name!r}")


def steady_steps(folder: pathlib.Path, traced: hlo.Module) -> list[list[Event]]:
  """What ran in each steady step of each rank, by the time of its start.

  What another instruction wraps, a collective of an async-start or a library
  call that reads and writes slices in place, stands in the trace by its own
  name; here it gets the wrapper's, as everywhere else.

  Args:
    folder: of the step.
    traced: the module that ran.
  """
  return [step for steps in by_rank(folder, traced).values() for step in steps]


def by_rank(
  folder: pathlib.Path, traced: hlo.Module
) -> dict[str, list[list[Event]]]:
  """`steady_steps` by the name of the rank, such as "rank0"."""
  names = _wrappers(traced)
  return {
    path.name.partition(".")[0]: list(_steps_of_rank(path, names))
    for path in sorted(folder.glob(_RANKS))
  }


def _wrappers(traced: hlo.Module) -> Mapping[str, str]:
  """Names of instructions, by the names of those that they only wrap."""
  computations = traced.computations
  return {
    inner.name: outer.name
    for computation in computations.values()
    for outer in computation.instructions
    if outer.opcode == "async-start" or outer.fusion_kind == "kCustom"
    for inner in computations[outer.called_computation_ids[0]].instructions
    if outer.opcode == "async-start" or inner.opcode == "custom-call"
  }


def kernel_runs(
  kernels: Sequence[Event], collectives: Sequence[Event]
) -> Iterator[KernelRun]:
  """The kernels of a step, with the collectives that ran beside them.

  Args:
    kernels: of one step of one rank, by the time of their start.
    collectives: of the same step and rank, at least one.
  """
  for kernel, following in zip(kernels, [*kernels[1:], None], strict=True):
    common_us, collective = max(
      (min(kernel.end_us, c.end_us) - max(kernel.begin_us, c.begin_us), c.name)
      for c in collectives
    )
    yield KernelRun(
      name=kernel.name,
      time_us=kernel.time_us,
      gap_us=following.begin_us - kernel.end_us if following else None,
      collective=collective,
      share=max(common_us, 0.0) / kernel.time_us,
    )


def lone_runs(
  steps: Sequence[Sequence[Event]], collective_names: Container[str]
) -> list[KernelRun]:
  """What ran in these steps beside none of the collectives."""
  return [
    run
    for step in steps
    for run in kernel_runs(
      [event for event in step if event.name not in collective_names],
      [event for event in step if event.name in collective_names],
    )
    if run.is_lone
  ]


def _steps_of_rank(
  path: pathlib.Path, names: Mapping[str, str]
) -> Iterator[list[Event]]:
  steps = collections.defaultdict(list)
  with lzma.open(path, "rt", encoding="utf-8") as file:
    for row in csv.DictReader(file):
      if int(row["step"]) >= _FIRST_STEADY_STEP:
        name = row["hlo_op"]
        begin_us = int(row["start_ns"]) / 1e3
        end_us = begin_us + int(row["duration_ns"]) / 1e3
        steps[row["step"]].append(
          Event(name=names.get(name, name), begin_us=begin_us, end_us=end_us)
        )
  for events in steps.values():
    yield sorted(events, key=lambda event: event.begin_us)
