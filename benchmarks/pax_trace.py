# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The trace of a real step: what ran when, alone or beside which collective.

The folder `pax_a100` holds the scheduled module of an FSDP step on four A100s
and when each of its operations ran, and for how long, on two of the four GPUs
(NVIDIA/JAX-Toolbox, test data of nsys-jax). A kernel's time says what the
kernel costs only where no collective ran at the same time: there it is lone.
Where one did, the trace shows what the collective cost the kernel.
"""

from __future__ import annotations

import collections
from collections.abc import Container, Iterator, Mapping, Sequence
import csv
import dataclasses
import lzma
import pathlib

from lagom_xla.passes import hlo

CLUSTER = "1x4xa100_40"
_FIRST_STEADY_STEP = 2


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


def module(folder: pathlib.Path) -> hlo.Module:
  """The step's scheduled module."""
  (path,) = folder.glob("*.hlo.pb.xz")
  return hlo.load(path)


def steady_steps(folder: pathlib.Path, traced: hlo.Module) -> list[list[Event]]:
  """What ran in each steady step of each rank, by the time of its start.

  Collectives that an async-start wraps stand in the trace by their own names;
  here they get the start's, as everywhere else.

  Args:
    folder: pax_a100.
    traced: the module that ran.
  """
  names = _starts_by_wrapped(traced)
  return [
    step
    for path in sorted(folder.glob("rank*.csv.xz"))
    for step in _steps_of_rank(path, names)
  ]


def _starts_by_wrapped(traced: hlo.Module) -> Mapping[str, str]:
  """Names of async-starts, by the names of the operations that they wrap."""
  computations = traced.computations
  return {
    computations[start.called_computation_ids[0]].root.name: start.name
    for computation in computations.values()
    for start in computation.instructions
    if start.opcode == "async-start"
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
