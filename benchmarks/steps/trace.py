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
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
import csv
import lzma
import pathlib
import re

from lagom_xla import cluster as cluster_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.profiling import events as events_lib
from lagom_xla.profiling import steps as steps_lib

# Steps 0 and 1 warm up.
_FIRST_STEADY_STEP = 2
_MODULE = "*gpu_after_optimizations.hlo.pb.xz"
_RANKS = "rank*.csv.xz"
_DEVICE = re.compile(r'^device_description_str: "(.*)"$', re.MULTILINE)


def folders(data: pathlib.Path) -> list[pathlib.Path]:
  """The folders of a folder that have a step's module and when it ran."""
  return sorted(
    folder
    for folder in data.iterdir()
    if all(any(folder.glob(pattern)) for pattern in (_MODULE, _RANKS))
  )


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


def steady_steps(
  folder: pathlib.Path, traced: hlo.Module
) -> list[list[events_lib.Event]]:
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
) -> dict[str, list[list[events_lib.Event]]]:
  """`steady_steps` by the name of the rank, such as "rank0"."""
  names = steps_lib.wrappers(traced)
  return {
    path.name.partition(".")[0]: list(_steps_of_rank(path, names))
    for path in sorted(folder.glob(_RANKS))
  }


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
