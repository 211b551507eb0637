# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The steps that recipes are judged on: each on H100s, B200s and A100s.

XLA's published modules, the examples, and the workloads of Lagom's paper, with
as many nodes as there (its two clusters differ in nothing else), on other GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import dataclasses
import functools
import pathlib

from benchmarks.paper import cases as paper_cases
from benchmarks.workloads import train_step
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import load as load_lib
from lagom_xla.compile import target as target_lib

GPUS = ("h100", "b200", "a100_80")

_EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
# Name -> nodes and GPUs per node, file.
_OF_FILES = {
  "llama31_70b_bf16_16x8": ("16x8", "hlo/hlo_llama31_70b_bf16_16x8.hlo.xz"),
  "llama3_8b_cp_bf16_1x4": ("1x4", "hlo/hlo_llama3_8b_cp_bf16_1x4.hlo.xz"),
  "llama31_8b_bf16_1x8": ("1x8", "hlo/hlo_llama31_8b_bf16_1x8.hlo.xz"),
  "mixtral_8x7b_bf16_2x8": ("2x8", "hlo/hlo_mixtral_8x7b_bf16_2x8.hlo.xz"),
  "maxtext": (
    "1x4",
    "maxtext_h100/module_0016.jit_train_step.before_optimizations.hlo.pb.xz",
  ),
}
# Name -> example, nodes and GPUs per node, arguments.
_OF_EXAMPLES = {
  "llama-1b": ("llama", "1x8", {"model": "1b"}),
  "llama-8b": ("llama", "4x8", {"model": "8b"}),
  "llama-8b-tp": ("llama", "1x8", {"model": "8b", "mesh": "fsdp:1,tp:8"}),
  "llama-70b": ("llama", "16x8", {"model": "70b", "mesh": "fsdp:128,tp:1"}),
  "moe": ("moe", "1x8", {}),
  "gpt": ("gpt", "2x8", {}),
  "mlp": ("mlp", "2x8", {}),
}

_Load = Callable[[pathlib.Path | None], target_lib.Target]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
  """A step on a cluster.

  Attributes:
    module: what it is called.
    cluster: as on the command line.
    load: makes the target; takes the folder with data, if there is one.
    file: what it needs of that folder; "" if nothing.
  """

  module: str
  cluster: str
  load: _Load
  file: str = ""


def cases(gpu: str) -> Iterator[Case]:
  """All steps, on one kind of GPU."""
  for name, (example, shape, arguments) in _OF_EXAMPLES.items():
    target = f"{_EXAMPLES / example}/train.py:train_step"
    cluster = f"{shape}x{gpu}"
    load = functools.partial(_load, target, cluster, arguments)
    yield Case(module=name, cluster=cluster, load=lambda _, f=load: f())
  for name, (shape, file) in _OF_FILES.items():
    yield of_file(name, file, f"{shape}x{gpu}")
  for case in paper_cases.table_2():
    if case.cluster == paper_cases.CLUSTERS[0]:
      cluster = f"{case.num_nodes}x8x{gpu}"
      load = functools.partial(_of_paper, case.workload, cluster, case.model)
      name = f"{case.model}/{case.kind}"
      yield Case(module=name, cluster=cluster, load=lambda _, f=load: f())


def all_cases() -> Iterator[Case]:
  """All steps, on every kind of GPU."""
  for gpu in GPUS:
    yield from cases(gpu)


def of_file(name: str, file: str, cluster: str) -> Case:
  """A module of the folder with data, before optimization."""

  def load(data: pathlib.Path | None) -> target_lib.Target:
    assert data is not None
    return load_lib.load(str(data / file), cluster_lib.parse(cluster))

  return Case(module=name, cluster=cluster, load=load, file=file)


def _load(
  target: str, cluster: str, arguments: dict[str, str]
) -> target_lib.Target:
  return load_lib.load(target, cluster_lib.parse(cluster), arguments=arguments)


def _of_paper(
  workload: train_step.Workload, cluster: str, name: str
) -> target_lib.Target:
  parsed = cluster_lib.parse(cluster)
  step, args = train_step.train_step(devices_lib.devices(parsed), workload)
  return target_lib.of_step(step.lower(*args), parsed, name=name)
