# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A traced step: its module with predicted costs, and its timeline.

A folder holds the scheduled module of a step, its GPU, and the start and
duration of each operation on some of the GPUs, as nsys-jax extracts them from a
trace of Nsight Systems (NVIDIA/JAX-Toolbox; `pax_a100` and `maxtext_h100` come
from its test data).

    *gpu_after_optimizations.hlo.pb.xz   the module
    *gpu_target_config.pbtxt.xz          the GPU, by its description
    rank*.csv.xz                         step, hlo_op, start_ns, duration_ns
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import csv
import dataclasses
import functools
import itertools
import lzma
import pathlib
import re
import statistics

from benchmarks import table as table_lib
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import fusion
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.profiling import events as events_lib
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.profiling import steps as steps_lib
from lagom_xla.profiling import trace as trace_lib

# Steps 0 and 1 are warm-up.
_FIRST_STEADY_STEP = 2
_MODULE = "*gpu_after_optimizations.hlo.pb.xz"
_RANKS = "rank*.csv.xz"
_DEVICE = re.compile(r'^device_description_str: "(.*)"$', re.MULTILINE)


def folders(data: pathlib.Path) -> list[pathlib.Path]:
  """The subfolders with a step's module and timeline."""
  return sorted(
    folder
    for folder in data.iterdir()
    if all(any(folder.glob(pattern)) for pattern in (_MODULE, _RANKS))
  )


def read_module(folder: pathlib.Path) -> hlo.Module:
  """The step's scheduled module."""
  (path,) = folder.glob(_MODULE)
  return hlo.load(path)


def cluster_of(folder: pathlib.Path, traced: hlo.Module) -> cluster_lib.Cluster:
  """The node on which the step ran; the module has its number of GPUs."""
  (path,) = folder.glob("*gpu_target_config.pbtxt.xz")
  text = lzma.decompress(path.read_bytes()).decode("utf-8")
  (device_name,) = _DEVICE.findall(text)
  num_gpus = collectives_lib.num_devices(traced) or 1
  for name in cluster_lib.gpu_names():
    found = cluster_lib.parse(f"1x{num_gpus}x{name}")
    if found.gpu.device_name == device_name:
      return found
  raise ValueError(f"{path}: no GPU that is known is a {device_name!r}")


def by_rank(
  folder: pathlib.Path, traced: hlo.Module
) -> list[list[list[events_lib.Event]]]:
  """Events of each steady step of each rank, in the order of their starts.

  The trace names wrapped instructions, such as a collective in an async-start
  or a library call on slices in place. Here they get the wrapper's name, as
  everywhere else.
  """
  names = steps_lib.wrappers(traced)
  paths = sorted(folder.glob(_RANKS))
  return [list(_steps_of_rank(path, names)) for path in paths]


def _steps_of_rank(
  path: pathlib.Path, names: Mapping[str, str]
) -> Iterator[list[events_lib.Event]]:
  steps = collections.defaultdict(list)
  with lzma.open(path, "rt", encoding="utf-8") as file:
    for row in csv.DictReader(file):
      if int(row["step"]) >= _FIRST_STEADY_STEP:
        name = row["hlo_op"]
        begin_us = int(row["start_ns"]) / 1e3
        end_us = begin_us + int(row["duration_ns"]) / 1e3
        steps[row["step"]].append(
          events_lib.Event(
            name=names.get(name, name), begin_us=begin_us, end_us=end_us
          )
        )
  for events in steps.values():
    yield sorted(events, key=lambda event: event.begin_us)


class TracedStep:
  """The step's module with its predicted costs, and its timeline.

  Attributes:
    name: the name of the folder.
    step: the module on its cluster.
    ranks: the steady steps of each rank, as events in the order of starts.
    steps: the steady steps of all ranks.
    profile: the same as a profile, with an event for each kernel that ran.
    kernels: the module's kernels, by name.
    collectives: the module's collectives, by name.
  """

  def __init__(self, folder: pathlib.Path):
    module = read_module(folder)
    cluster = cluster_of(folder, module)
    self.name = folder.name
    self.step = step_lib.of_module(module, cluster)
    self.ranks = by_rank(folder, module)
    self.steps = list(itertools.chain.from_iterable(self.ranks))
    self.profile = self._profile()
    self.kernels = self.profile.kernels
    self.collectives = self.profile.collectives

  def _profile(self) -> profile_lib.Profile:
    analysis = self.step.analysis
    kernels = {kernel.name for kernel in analysis.kernels.values()}
    collectives = {collective.name for collective in analysis.collectives}
    devices = tuple(
      trace_lib.Device(
        name=f"GPU:{rank}",
        process=0,
        launches=(),
        num_unnamed=0,
        unnamed_us=0.0,
      )
      for rank in range(len(self.ranks))
    )
    process = trace_lib.Process(name=self.name, has_clock=False, modules={})
    return profile_lib.Profile(
      trace=trace_lib.Trace(
        platform="GPU", processes=(process,), devices=devices
      ),
      analysis=analysis,
      steps=[
        steps_lib.DeviceStep(
          device=rank,
          number=number,
          is_whole=True,
          kernels=tuple(e for e in step if e.name in kernels),
          collectives=tuple(e for e in step if e.name in collectives),
        )
        for rank, steps in enumerate(self.ranks)
        for number, step in enumerate(steps)
      ],
      offsets_us=[0.0],
    )

  @property
  def step_time_us(self) -> float:
    """Median of the steady steps of all ranks."""
    return statistics.median(map(span_us, self.steps))

  @property
  def step_time_less_scatters_us(self) -> float:
    """`step_time_us` without colliding scatters and the waits they cause.

    A rank whose scatter ends early waits for the others in its next collective.
    The minimum time of that collective, over all ranks and steps, counts as its
    time without a wait.
    """
    scatters = {k.name for k in self.colliding_scatters}
    rests_us, waiting = [], []
    for step in self.steps:
      slow = [event for event in step if event.name in scatters]
      following = [
        next(
          e
          for e in step
          if e.name in self.collectives and e.begin_us >= event.end_us
        )
        for event in slow
      ]
      rests_us.append(
        span_us(step) - sum(e.time_us for e in (*slow, *following))
      )
      waiting.append([e.time_us for e in following])
    own_us = sum(min(times) for times in zip(*waiting, strict=True))
    return statistics.median(rests_us) + own_us

  @functools.cached_property
  def colliding_scatters(self) -> Sequence[kernels_lib.Kernel]:
    """Kernels that update elements atomically, with retries."""
    gpu = self.step.cluster.gpu
    return [
      k
      for k in self.kernels.values()
      if k.scatter and fusion.num_tries(k.scatter, gpu)
    ]

  def runs(self, rank: int) -> Iterator[events_lib.KernelRun]:
    """The runs of a rank's kernels."""
    for step in self.profile.steps:
      if step.device == rank:
        yield from events_lib.kernel_runs(step.kernels, step.collectives)

  @functools.cached_property
  def median_us(self) -> Mapping[str, float]:
    """Median time of each operation in the steps of all ranks, by name."""
    return median_us(itertools.chain.from_iterable(self.steps))

  def collective_as_it_ran(
    self, name: str, took_us: float | None = None
  ) -> collective_lib.CollectiveCost:
    """A predicted cost, with its bytes spread over the measured time.

    A collective that waits for other ranks holds SMs but uses no bandwidth. The
    default time is the median of all steps.
    """
    key = self.step.key_of[name]
    cost = self.step.predict(key, self.step.default[key])
    return cost.lasting(self.median_us[name] if took_us is None else took_us)

  def kernel_cost(self, kernel: kernels_lib.Kernel) -> kernel_lib.KernelCost:
    """A predicted kernel without the gap after it, as in a trace."""
    cost = self.step.kernel_cost(kernel)
    return dataclasses.replace(cost, time_us=cost.run_us, gap_us=0.0)


def span_us(step: Sequence[events_lib.Event]) -> float:
  """Time from the start of a rank's step to its end."""
  return max(event.end_us for event in step) - step[0].begin_us


def median_us(events: Iterable[events_lib.Event]) -> Mapping[str, float]:
  """Median times of operations, by name."""
  times = collections.defaultdict(list)
  for event in events:
    times[event.name].append(event.time_us)
  return {name: statistics.median(us) for name, us in times.items()}


def show(
  module: str,
  doc: str | None,
  rows: Callable[[TracedStep], Iterable[table_lib.Row]],
  **columns: str,
) -> None:
  """Runs the command of a module that shows rows of all traced steps."""
  parser = table_lib.parser(module, doc)
  parser.add_argument("--data", type=table_lib.folder, required=True)
  arguments = parser.parse_args()
  found = [
    {"step": folder.name, **row}
    for folder in folders(arguments.data)
    for row in rows(TracedStep(folder))
  ]
  table = table_lib.Table(
    name=module.rpartition(".")[2],
    title=(doc or "").partition("\n")[0],
    columns=table_lib.columns(step="", **columns),
    rows=found,
  )
  table_lib.show([table], arguments.format, arguments.csv)
