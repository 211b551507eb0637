# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The comparison of one step on several clusters, as plain data.

It is all that the table, the page and `--format=json` show.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final, Literal

from lagom_xla import validation
from lagom_xla.report.page import story as story_lib
from lagom_xla.whatif import cases as cases_lib

# Raised whenever a field changes its meaning.
FORMAT_VERSION: Final = 1

Search = Literal["none", "quick", "full"]
Unit = Literal["tokens", "examples"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class AtRate:
  """The step on another network, all else equal.

  Attributes:
    gbits_per_gpu: what the node's adapters carry, for each of its GPUs, in
      Gbit/s.
    step_us: the step, under NCCL's own choices.
  """

  gbits_per_gpu: float
  step_us: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
  """What is predicted of the step on one cluster; times in microseconds.

  Attributes:
    step: as it runs today: XLA's defaults, NCCL's own choices.
    exposed_us: what kernels wait for collectives.
    slowdown_us: what kernels lose to collectives that run beside them.
    between_nodes_us: what collectives between nodes take alone, summed.
    lower_bound_us: what today's module cannot beat, in whatever order and with
      whatever settings of NCCL; with other options XLA makes another one.
    gain: what the best plan takes off the step; null where none was searched.
    plan: what that plan sets; empty where nothing is surely faster.
    flops: of all GPUs' matrix products in a step.
    per_step: tokens or examples in a step; null where none were given.
    memory_bytes: of a GPU, at the peak of the step.
    networks: the step on slower and faster networks; empty on one node.
  """

  step: story_lib.Estimate
  exposed_us: float
  slowdown_us: float
  between_nodes_us: float
  lower_bound_us: float
  gain: story_lib.Estimate | None
  plan: tuple[str, ...]
  flops: float
  per_step: float | None
  memory_bytes: int
  networks: tuple[AtRate, ...]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Row:
  """One cluster, with the step's figures or why there are none.

  Attributes:
    cluster: its name.
    series: what it has in common with clusters of other node counts.
    num_nodes: its nodes.
    num_gpus: its GPUs.
    gpu: the name of the GPU.
    gbits_per_gpu: what a node's adapters carry, for each of its GPUs, in
      Gbit/s.
    hbm_bytes: memory of a GPU.
    pcie_gbits: what a GPU's PCIe link takes of that, as NCCL counts on it.
    fabric: what joins its nodes.
    measured_nodes: on how many nodes of that fabric collectives were measured
      at most; on more, figures follow the cost model alone.
    compiled_for: the cluster that the schedule was compiled for: this one, or
      one of as many of the same GPUs, as XLA asks for nothing else.
    figures: the step's; null where it cannot be had.
    refusal: why not, in a sentence; empty where it can.
  """

  cluster: str
  series: str
  num_nodes: int
  num_gpus: int
  gpu: str
  gbits_per_gpu: float
  hbm_bytes: int
  pcie_gbits: float
  fabric: str
  measured_nodes: int
  compiled_for: str
  figures: Figures | None
  refusal: str

  @property
  def nodes(self) -> str:
    """The cluster's name without the rate that its network was given."""
    return self.cluster.removesuffix(
      cases_lib.rate_in_words(self.gbits_per_gpu)
    )

  @property
  def is_beyond_measured(self) -> bool:
    """Whether no collective was measured on so many nodes."""
    return self.num_nodes > max(self.measured_nodes, 1)

  @property
  def fits(self) -> bool:
    """Whether the GPU's memory holds the step."""
    return self.figures is None or self.figures.memory_bytes <= self.hbm_bytes

  @property
  def exposed_share(self) -> float:
    """What kernels wait for collectives, as a share of the step."""
    if self.figures is None or not self.figures.step.us:
      return 0.0
    return self.figures.exposed_us / self.figures.step.us

  @property
  def per_s(self) -> float | None:
    """Tokens or examples per second, of all GPUs."""
    if self.figures is None or self.figures.per_step is None:
      return None
    if not self.figures.step.us:
      return None
    return self.figures.per_step * 1e6 / self.figures.step.us

  @property
  def tflops_per_gpu(self) -> float:
    """Operations of matrix products, in 1e12 per second and GPU."""
    if self.figures is None or not self.figures.step.us:
      return 0.0
    return self.figures.flops / self.num_gpus / self.figures.step.us / 1e6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
  """A step on several clusters.

  Attributes:
    format_version: raised when a field changes its meaning.
    target: what the user called it.
    made_with: versions, in words.
    search: how the plan of each row was searched; points never get more than
      a quick search.
    unit: of `per_step`; null where it was not given.
    scaling: how the program grows with the number of GPUs, in a sentence.
    rows: the clusters that were asked for, at each network rate.
    points: the same kinds of nodes in other numbers.
    findings: what more network, or another number of nodes, would bring.
    notes: what to know of the figures.
  """

  __pydantic_config__ = validation.STRICT

  format_version: Literal[1] = FORMAT_VERSION
  target: str
  made_with: str
  search: Search
  unit: Unit | None
  scaling: str
  rows: tuple[Row, ...]
  points: tuple[Row, ...]
  findings: tuple[str, ...]
  notes: tuple[str, ...]


def schema() -> dict[str, Any]:
  """The JSON schema of `lagom-xla whatif --format=json`."""
  return validation.schema(Comparison)
