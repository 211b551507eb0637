# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A module of the tables: a train step on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import pathlib

from benchmarks.workloads import train_step
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import load
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import target as target_lib

_EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"

# Attention has no code here: a compile to the end only tells the memory.
_MOCKED = {"xla_gpu_mock_custom_calls": True}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Example:
  """A train step of examples/, whose collectives XLA's partitioner places.

  Attributes:
    file: such as "llama/train.py".
    arguments: of its `train_step`.
  """

  file: str
  arguments: Mapping[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Module:
  """A train step on a cluster.

  Attributes:
    name: what the tables call it.
    nodes: as on the command line, such as "8xh100" or "lagom_a".
    num_nodes: how many of them.
    program: the step.
  """

  name: str
  nodes: str
  num_nodes: int
  program: train_step.Workload | Example

  @property
  def cluster(self) -> cluster_lib.Cluster:
    """What it runs on."""
    text = self.nodes if self.nodes.startswith("lagom") else f"1x{self.nodes}"
    return dataclasses.replace(
      cluster_lib.parse(text), num_nodes=self.num_nodes
    )

  @property
  def cluster_name(self) -> str:
    """What the tables call the cluster."""
    return f"{self.num_nodes}x{self.nodes}"

  def target(self) -> target_lib.Target:
    """What is tuned."""
    cluster = self.cluster
    if isinstance(self.program, Example):
      text = f"{_EXAMPLES / self.program.file}:train_step"
      return load.load(text, cluster, arguments=self.program.arguments)
    step, args = train_step.train_step(
      devices_lib.devices(cluster), self.program
    )
    lowered = lowered_lib.LoweredStep(
      step.lower(*args), cluster, options_to_the_end=_MOCKED
    )
    return target_lib.StepTarget(name=self.name, cluster=cluster, step=lowered)
