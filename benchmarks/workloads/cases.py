# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Named train steps on clusters, for the benchmarks' tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import dataclasses
import pathlib

import jax

from benchmarks import table
from benchmarks.workloads import train_step
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import load as load_lib
from lagom_xla.compile import target as target_lib

_EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Case:
  """A train step on a cluster.

  Attributes:
    module: its name in the tables.
    cluster: as on the command line.
    load: makes the target; takes the data folder, if any.
    file: the file that it needs from that folder; "" if none.
    options: XLA options of its schedule.
  """

  module: str
  cluster: str
  load: Callable[[pathlib.Path | None], target_lib.Target]
  file: str = ""
  options: Mapping[str, bool | int] = dataclasses.field(default_factory=dict)


def of_example(
  module: str, example: str, cluster: str, **arguments: str
) -> Case:
  """A step of examples/ with these keyword arguments of its `train_step`."""
  text = f"{_EXAMPLES / example}/train.py:train_step"
  return Case(
    module=module,
    cluster=cluster,
    load=lambda _: load_lib.load(
      text, cluster_lib.parse(cluster), arguments=arguments
    ),
  )


def of_file(module: str, file: str, cluster: str) -> Case:
  """An unoptimized module from the data folder."""

  def load(data: pathlib.Path | None) -> target_lib.Target:
    assert data is not None
    return load_lib.load(str(data / file), cluster_lib.parse(cluster))

  return Case(module=module, cluster=cluster, load=load, file=file)


def of_lowered(
  module: str,
  cluster: str,
  lower: Callable[[Sequence[jax.Device]], jax.stages.Lowered],
  **options: bool | int,
) -> Case:
  """A step that a function lowers for the cluster's devices."""

  def load(_: pathlib.Path | None) -> target_lib.Target:
    parsed = cluster_lib.parse(cluster)
    lowered = lower(devices_lib.devices(parsed))
    return target_lib.of_step(lowered, parsed, name=module)

  return Case(module=module, cluster=cluster, load=load, options=options)


def of_workload(
  module: str, cluster: str, workload: train_step.Workload
) -> Case:
  """The train step of a workload."""
  return of_lowered(
    module, cluster, lambda devices: train_step.lower(devices, workload)
  )


def available(
  cases: Iterable[Case], data: pathlib.Path | None
) -> Iterator[Case]:
  """The cases that can be loaded; others are named on stderr."""
  for case in cases:
    if case.file and (data is None or not (data / case.file).is_file()):
      table.say(f"{case.module} left out: it needs --data with {case.file}")
    else:
      yield case
