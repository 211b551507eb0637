# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The comparison of one step on several clusters, as plain data.

It holds everything that the table, the page and `--format=json` show.

The user's code decides how the work grows with the cluster, when it builds the
step. Work is measured by the FLOPs of all matrix products: with a batch that
grows with the GPUs (weak scaling), the FLOPs per GPU stay the same; with a
fixed batch (strong scaling), the total does. The user gives tokens or examples
per step for the first cluster; for others they are scaled by FLOPs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
import dataclasses
import itertools
from typing import Final, Literal

from lagom_xla import validation
from lagom_xla.apply import checked
from lagom_xla.costs import in_words
from lagom_xla.report import notes as notes_lib
from lagom_xla.report.page import report
from lagom_xla.search.xla import memory_pool
from lagom_xla.whatif import cases as cases_lib

# Increased when a field changes its meaning.
FORMAT_VERSION: Final = 1

Search = Literal["none", "quick", "full"]
Unit = Literal["tokens", "examples"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class AtRate:
  """The step on another network, all else equal.

  Attributes:
    gbits_per_gpu: rate of the node's adapters per GPU, in Gbit/s.
    step_us: step time under NCCL's own choices, in microseconds.
  """

  gbits_per_gpu: float
  step_us: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
  """Predictions for the step on one cluster; times in microseconds.

  Attributes:
    step: step time as it runs today: XLA's defaults, NCCL's own choices.
    exposed_us: how long kernels wait for collectives.
    slowdown_us: how much longer kernels take beside collectives.
    between_nodes_us: sum of the times of collectives between nodes, each run
      alone.
    lower_bound_us: a step time that today's module cannot beat, in any order
      and with any NCCL settings; other XLA options make another module.
    gain: the best plan's gain; null if none was searched.
    plan: that plan's settings; empty if none is surely faster.
    flops: FLOPs of all GPUs' matrix products per step.
    per_step: tokens or examples per step; null if not given.
    memory_bytes: peak memory of a GPU.
    run_otherwise: which collectives NCCL settings do not affect, and what runs
      them, in words; empty if there are none.
    calls_that_may_communicate: library calls that may contain collectives,
      which lagom_xla does not see.
    networks: the step on slower and faster networks; empty on one node.
  """

  step: report.Estimate
  exposed_us: float
  slowdown_us: float
  between_nodes_us: float
  lower_bound_us: float
  gain: report.Estimate | None
  plan: tuple[str, ...]
  flops: float
  per_step: float | None
  memory_bytes: int
  run_otherwise: str
  calls_that_may_communicate: tuple[str, ...]
  networks: tuple[AtRate, ...]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Row:
  """One cluster, with the step's figures or why there are none.

  Attributes:
    cluster: its name.
    series: its name without the node count.
    num_nodes: number of nodes.
    num_gpus: number of GPUs.
    gpu: name of the GPU.
    gbits_per_gpu: rate of a node's adapters per GPU, in Gbit/s.
    hbm_bytes: memory of a GPU.
    pool_bytes: the part of it that JAX takes.
    pcie_gbits: rate that NCCL assumes for a GPU's PCIe link, in Gbit/s.
    fabric: the network between nodes.
    measured_nodes: the most nodes of that fabric on which collectives were
      measured; beyond, figures come from the cost model alone.
    compiled_for: the cluster that the schedule was compiled for: this one, or
      another with the same GPUs, which is all that XLA knows of a cluster.
    figures: the step's figures; null if there are none.
    refusal: why there are none, in a sentence; else empty.
  """

  cluster: str
  series: str
  num_nodes: int
  num_gpus: int
  gpu: str
  gbits_per_gpu: float
  hbm_bytes: int
  pool_bytes: int
  pcie_gbits: float
  fabric: str
  measured_nodes: int
  compiled_for: str
  figures: Figures | None
  refusal: str

  @property
  def nodes(self) -> str:
    """The cluster's name without a changed network rate."""
    return self.cluster.removesuffix(
      cases_lib.rate_in_words(self.gbits_per_gpu)
    )

  @property
  def is_beyond_measured(self) -> bool:
    """Whether it has more nodes than collectives were measured on."""
    return self.num_nodes > max(self.measured_nodes, 1)

  @property
  def fits(self) -> bool:
    """Whether the step fits into the memory that JAX takes of a GPU."""
    return self.figures is None or self.figures.memory_bytes <= self.pool_bytes

  @property
  def exposed_share(self) -> float:
    """How long kernels wait for collectives, as a share of the step."""
    return self._over_step(self.figures.exposed_us if self.figures else 0.0)

  @property
  def has_per_s(self) -> bool:
    """Whether tokens or examples per step are known."""
    return self.figures is not None and self.figures.per_step is not None

  @property
  def throughput(self) -> float:
    """Tokens or examples per second; if unknown, TFLOP/s per GPU."""
    if self.figures is None or self.figures.per_step is None:
      return self.tflops_per_gpu
    return self._over_step(self.figures.per_step * 1e6)

  @property
  def tflops_per_gpu(self) -> float:
    """FLOPs of matrix products, in 1e12 per second and GPU."""
    flops = self.figures.flops if self.figures else 0.0
    return self._over_step(flops / self.num_gpus) / 1e6

  def _over_step(self, value: float) -> float:
    step_us = self.figures.step.us if self.figures else 0.0
    return value / step_us if step_us else 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
  """A step on several clusters.

  Attributes:
    format_version: increased when a field changes its meaning.
    target: the user's name of the target.
    made_with: versions, as text.
    search: how each row's plan was searched; points get a quick search at most.
    unit: unit of `per_step`; null if not given.
    scaling: how the program grows with the number of GPUs, in a sentence.
    rows: the clusters that were asked for, at each network rate.
    points: the same clusters with other node counts.
    findings: the effect of faster networks and other node counts.
    notes: notes on the figures.
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

  @property
  def all_rows(self) -> tuple[Row, ...]:
    """The rows, then the points that are not among them."""
    rows = {row.cluster: row for row in (*self.rows, *self.points)}
    return tuple(rows.values())

  @property
  def rate(self) -> str:
    """The unit of `Row.throughput`."""
    return f"{self.unit}/s" if self.unit else "TFLOP/s/GPU"


# Smaller changes count as none.
LEAST = 5e-4
# A finding names the node count where work per GPU falls below this share.
_HALF = 0.5
# Tolerance for matrix products of optimizers, and for padding.
_ALIKE = 0.05


def of_rows(
  rows: Sequence[Row],
  points: Sequence[Row],
  *,
  target: str,
  search: Search,
  unit: Unit | None = None,
  per_step: float | None = None,
  repeated: str = "",
) -> Comparison:
  """The comparison of rows, at least one of which has figures."""
  first, told = rows[0], []
  if per_step is not None and first.figures is None:
    unit = None
    told.append(
      f"Throughput is unknown: the {unit} given are per step of the first"
      f" cluster, {first.cluster}, which has no figures."
    )
  elif per_step is not None:
    rows = [_with_per_step(row, first, per_step) for row in rows]
    points = [_with_per_step(row, first, per_step) for row in points]
  return Comparison(
    target=target,
    made_with=checked.versions(),
    search=search,
    unit=unit,
    scaling=_scaling([*rows, *points], unit),
    rows=tuple(rows),
    points=tuple(points),
    findings=tuple(_findings(rows, points, unit)),
    notes=(*told, *_notes(rows, points, search, repeated)),
  )


def _with_per_step(row: Row, first: Row, per_step: float) -> Row:
  """A row with tokens or examples per step, given those of the first row."""
  figures, known = row.figures, first.figures
  if figures is None or known is None:
    return row
  share = figures.flops / known.flops if known.flops else 1.0
  figures = dataclasses.replace(figures, per_step=per_step * share)
  return dataclasses.replace(row, figures=figures)


def _findings(
  rows: Sequence[Row], points: Sequence[Row], unit: str | None
) -> Iterator[str]:
  """All findings, in sentences, the most important first."""
  known = [row for row in rows if row.figures is not None]
  if len(known) > 1:
    yield _best(known, unit)
  # One row per cluster, whatever its network rates.
  once: dict[str, Row] = {}
  for row in known:
    once.setdefault(row.nodes, row)
  for row in once.values():
    faster, slower = network_gain(row, 2.0), network_gain(row, 0.5)
    if faster is not None and slower is not None:
      rate = row.gbits_per_gpu
      yield (
        f"{row.cluster}: with {2 * rate:,.5g} Gbit/s per GPU the step is"
        f" {_change(faster, 'no shorter')}, with {rate / 2:,.5g}"
        f" {_change(slower, 'no longer')}."
      )
  # Why a faster network does not help, if it does not.
  idle = {
    row.pcie_gbits
    for row in once.values()
    if 2 * row.gbits_per_gpu > row.pcie_gbits
    and (gain := network_gain(row, 2.0)) is not None
    and abs(gain) < LEAST
  }
  for pcie_gbits in sorted(idle):
    yield (
      "A faster network does not help: NCCL assumes that a GPU's PCIe link"
      f" carries {pcie_gbits:,.4g} Gbit/s."
    )
  for curve in series(points).values():
    yield from _nodes(curve)


def _best(rows: Sequence[Row], unit: str | None) -> str:
  first = max(rows, key=lambda row: row.tflops_per_gpu)
  if unit is None:
    return (
      f"Most work per GPU: {first.cluster}, {first.tflops_per_gpu:,.0f} TFLOP/s"
      " of matmuls."
    )
  most = max(rows, key=lambda row: row.throughput)
  first = max(rows, key=lambda row: row.throughput / row.num_gpus)
  return (
    f"Most {unit} per second: {most.cluster},"
    f" {in_words.short(most.throughput)}; most per GPU: {first.cluster},"
    f" {in_words.short(first.throughput / first.num_gpus)}."
  )


def _change(gain: float, none: str) -> str:
  if abs(gain) < LEAST:
    return none
  return f"{abs(gain):.1%} {'shorter' if gain > 0 else 'longer'}"


def _nodes(curve: Sequence[Row]) -> Iterator[str]:
  """How the work per GPU and second falls with the number of nodes."""
  first, last = curve[0], curve[-1]
  if len(curve) < 2 or not first.tflops_per_gpu:
    return
  kept = {
    row.num_nodes: row.tflops_per_gpu / first.tflops_per_gpu for row in curve
  }
  text = (
    f"{first.series}: on {in_words.count(last.num_nodes, 'node')} a GPU reaches"
    f" {kept[last.num_nodes]:.0%} of its speed on {first.num_nodes:,}"
  )
  bent = [nodes for nodes, share in kept.items() if share < _HALF]
  if bent:
    text += f", and less than half from {min(bent):,} on"
  yield text + "."


def series(points: Iterable[Row]) -> dict[str, list[Row]]:
  """Rows with figures by series, the fewest nodes first."""
  found: dict[str, list[Row]] = {}
  for row in sorted(points, key=lambda row: row.num_nodes):
    if row.figures is not None:
      found.setdefault(row.series, []).append(row)
  return found


def network_gain(row: Row, factor: float) -> float | None:
  """The gain of a network `factor` times as fast, as a share of the step."""
  if row.figures is None or not row.figures.step.us:
    return None
  wanted = row.gbits_per_gpu * factor
  for at in row.figures.networks:
    if abs(at.gbits_per_gpu / wanted - 1) < 1e-9:
      return 1 - at.step_us / row.figures.step.us
  return None


def _notes(
  rows: Sequence[Row], points: Sequence[Row], search: Search, repeated: str
) -> Iterator[str]:
  """Notes on the figures of some clusters, then of all."""
  for row in rows:
    figures = row.figures
    if figures is None:
      continue
    if not row.fits:
      yield (
        f"{row.cluster}: needs {in_words.gigabytes(figures.memory_bytes)} of"
        f" {memory_pool.of_a_gpu(row.hbm_bytes)}."
        f"{memory_pool.advice(figures.memory_bytes, row.hbm_bytes)}"
      )
    for slower, faster in itertools.pairwise(figures.networks):
      if faster.step_us > slower.step_us * (1 + LEAST):
        yield (
          f"{row.cluster}: a faster network is predicted to be slower from"
          f" {slower.gbits_per_gpu:,.5g} to {faster.gbits_per_gpu:,.5g} Gbit/s,"
          " as NCCL chooses other algorithms there."
        )
        break
  clusters_of: dict[str, list[str]] = {}
  for row in rows:
    for words in _of_calls_and_kernels(row.figures):
      clusters_of.setdefault(words, []).append(row.cluster)
  for words, names in clusters_of.items():
    yield f"{', '.join(names)}: {words}."
  if repeated:
    yield repeated
  if note := notes_lib.costed():
    yield note
  if note := notes_lib.uncosted():
    yield f"{note}."
  costed = [row for row in (*rows, *points) if row.figures is not None]
  num_compiled = len({row.compiled_for for row in costed})
  if num_compiled < len({row.cluster for row in costed}):
    yield (
      f"{in_words.count(num_compiled, 'schedule')} compiled for all clusters:"
      " those with the same number of the same GPUs share one, costed on each"
      " network."
    )
  beyond = {
    row.fabric: row.measured_nodes for row in costed if row.is_beyond_measured
  }
  if beyond:
    measured = ", ".join(f"{fabric} {num}" for fabric, num in beyond.items())
    yield (
      f"* On more nodes than were measured ({measured}), times come from the"
      " cost model alone, and ranges from fewer nodes."
    )
  if search == "quick":
    yield (
      "Plans have NCCL settings only; --search=full also tries XLA's options."
    )
  if search == "full" and points:
    yield "For other node counts, only NCCL settings were searched."


def _of_calls_and_kernels(figures: Figures | None) -> Iterator[str]:
  """What NCCL settings do not affect, and what is unknown."""
  if figures is None:
    return
  if figures.run_otherwise:
    yield f"NCCL settings do not affect {figures.run_otherwise}"
  if figures.step.is_open:
    yield (
      "steps may take longer (marked ?): of some calls, only the bytes are"
      " costed"
    )
  if calls := figures.calls_that_may_communicate:
    yield (
      f"{in_words.some(calls)} may hold collectives that lagom_xla does not"
      " see, time or tune"
    )


def _scaling(rows: Sequence[Row], unit: str | None) -> str:
  """How the program's work grows from the fewest to the most GPUs."""
  known = [row for row in rows if row.figures is not None]
  sizes = sorted(known, key=lambda row: row.num_gpus)
  least, most = sizes[0], sizes[-1]
  assert least.figures is not None and most.figures is not None
  if least.num_gpus == most.num_gpus:
    return (
      f"All have the same number of GPUs, {least.num_gpus:,}, and the same"
      f" {unit or 'work'} per step."
    )
  if not least.figures.flops:
    return (
      "The program has no matmuls that show how its work grows with the"
      " GPUs: a step is assumed to do the same work on all."
    )
  gpus = most.num_gpus / least.num_gpus
  work = most.figures.flops / least.figures.flops
  span = f"from {least.num_gpus:,} to {most.num_gpus:,} GPUs"
  as_they_do = (
    f", and its {unit} per step are taken to grow as they do" if unit else ""
  )
  if abs(work / gpus - 1) <= _ALIKE:
    return (
      f"Weak scaling: {span} the program's matmuls grow with the"
      f" GPUs{as_they_do}."
    )
  if abs(work - 1) <= _ALIKE:
    too = f", and so do its {unit} per step" if unit else ""
    return f"Strong scaling: {span} the program's matmuls stay the same{too}."
  change = f"grow {work:,.4g} times" if work > 1 else f"shrink to {work:.2%}"
  return (
    f"Mixed scaling: {span}, {gpus:,.4g} times as many, the program's matmuls"
    f" {change}{as_they_do}."
  )
