# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The uncertainty of predictions, from the model's errors on measurements.

A scenario sets the error of one part of the model to one end of its spread
throughout a step, and the step is replayed in each scenario. An error that is
the same everywhere is the worst case. Errors of different parts are assumed to
be independent, so their effects add in quadrature:

    low = t - sqrt(sum over parts of max(0, t - least t of the part)^2)

and high likewise. For the gain of one plan over another, t is the difference of
both in the same scenario, so common errors cancel. A step time has one more
part: the error of a replay whose kernels and collectives take exactly their
measured times. In one further scenario, mechanisms without any measurement gain
nothing (`scenario.SURE`).

For measured costs, their spread over the run's steps replaces the model's
error.

fitted/errors.json has the range of 90 % of the errors of each part of the
model, over held-out figures if there are any. benchmarks/errors.py writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import functools
import math

from lagom_xla import cluster as cluster_lib
from lagom_xla import costs
from lagom_xla.costs import fusion
from lagom_xla.costs import in_words
from lagom_xla.costs import measured as measured_lib
from lagom_xla.costs import scenario as scenario_lib
from lagom_xla.costs import step as step_lib

# Percentiles of fewer figures are unreliable: such a fabric has at least the
# spread of all fabrics together.
LEAST_FIGURES = 20


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
  """Errors of a part of the model, as ln(measured / predicted).

  Attributes:
    groups: groups of figures, as `python -m benchmarks.accuracy` names them.
    n: number of figures.
    median: median of the absolute errors.
    p90: 90th percentile of the absolute errors.
    low: the 5th percentile of the errors, at most 0.
    bias: the median error; positive if predicted times are too short.
    high: the 95th percentile of the errors, at least 0.
    is_held_out: whether the figures are in no fit.
  """

  groups: tuple[str, ...]
  n: int
  median: float
  p90: float
  low: float
  bias: float
  high: float
  is_held_out: bool

  @property
  def factors(self) -> tuple[float, float]:
    """The ends of the range of measured over predicted time, larger first."""
    return math.exp(self.high), math.exp(self.low)


@functools.cache
def spreads() -> Mapping[str, Spread]:
  """The spreads of fitted/errors.json, by part."""
  parts = costs.read_fitted("errors")["parts"]
  return {
    part: Spread(**(figures | {"groups": tuple(figures["groups"])}))
    for part, figures in parts.items()
  }


def of_collectives(
  cluster: cluster_lib.Cluster, *, is_between_nodes: bool
) -> Spread:
  """The spread of collectives of 64 KiB and more on a cluster.

  Between nodes it is that of the cluster's fabric, or that of all fabrics if
  that is larger and the fabric has fewer than `LEAST_FIGURES` figures. Within
  nodes it is that of NVLink. GPUs connected only by PCIe, of which no fit has
  rows, have the spread of all fabrics. For a calibrated cluster it is the
  spread of systems calibrated by a third of their rows, over the other rows, if
  that is smaller.
  """
  is_near = not is_between_nodes and cluster.node.nvlink is not None
  part = "within_nodes" if is_near else "between_nodes"
  fabric = cluster.node.fabric if is_between_nodes else ""
  found = _spread(part, fabric)
  factors = cluster_lib.Factors()
  if cluster.calibration is not None:
    factors = cluster.calibration.of(2 if is_between_nodes else 1)
  if factors != cluster_lib.Factors():
    calibrated = _spread(f"{part}.calibrated", fabric)
    return min(found, calibrated, key=lambda spread: spread.p90)
  return found


def _spread(part: str, fabric: str) -> Spread:
  """The spread of a fabric, or of all fabrics if it has few figures."""
  pooled = spreads()[part]
  own = spreads().get(f"{part}.{fabric}")
  if own is None or (own.n < LEAST_FIGURES and own.p90 < pooled.p90):
    return pooled
  return own


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
  """A predicted figure with its range.

  Attributes:
    mean: the prediction.
    low: the lower end of its 90 % range.
    high: the upper end of that range.
    is_open: whether it may be far above that, because of calls of unknown work.
  """

  mean: float
  low: float
  high: float
  is_open: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Times:
  """Step times of one configuration.

  Attributes:
    mean_us: the prediction.
    by_scenario: the time in each of the cluster's scenarios.
    step_factors: spread of measured steps around their replay; None if none
      were measured.
    is_open: whether the step has calls of unknown work.
  """

  mean_us: float
  by_scenario: Mapping[scenario_lib.Scenario, float]
  step_factors: measured_lib.Factors | None = None
  is_open: bool = False

  @property
  def sure_us(self) -> float:
    """Step time if mechanisms without any measurement gain nothing."""
    return self.by_scenario.get(scenario_lib.SURE, self.mean_us)


@functools.cache
def scenarios(
  cluster: cluster_lib.Cluster, measured: measured_lib.Measured | None = None
) -> tuple[scenario_lib.Scenario, ...]:
  """The scenarios of a cluster, including those of measured costs."""
  free = scenario_lib.Scenario(
    name="collectives below 64 KiB cost nothing",
    part="small_collectives",
    small_collectives=0.0,
  )
  wrong: list[tuple[str, str, Sequence[float]]] = []
  for part, words, is_both_ways in _PARTS:
    if part == "between_nodes" and cluster.num_nodes == 1:
      continue
    if part in ("within_nodes", "between_nodes"):
      spread = of_collectives(cluster, is_between_nodes=part == "between_nodes")
    else:
      spread = spreads()[part]
    factors = spread.factors[: 2 if is_both_ways else 1]
    wrong.append((part, words, factors))
  wrong.append(
    (
      "scattered_reads",
      "reads across the order of memory take",
      fusion.SCATTERED_FACTORS,
    )
  )
  if measured is not None:
    wrong += [
      (part, f"{part.replace('_', ' ')} take", factors or ())
      for part, factors in (
        ("measured_kernels", measured.kernel_factors),
        ("measured_collectives", measured.collective_factors),
      )
    ]
  found = [
    scenario_lib.Scenario(
      name=f"{words} {in_words.off_by(f)}", part=part, **{part: f}
    )
    for part, words, factors in wrong
    for f in factors
  ]
  return (free, *found, scenario_lib.SURE)


# (part, its scenario's name before the factor, whether it may also be faster).
# Faster small collectives have their own scenario. Faster settings than NCCL's
# have none, because no plan may depend on them.
_PARTS = (
  ("small_collectives", "collectives below 64 KiB take", False),
  ("within_nodes", "collectives within nodes take", True),
  ("between_nodes", "collectives between nodes take", True),
  ("few_channels", "channels, when fewer than NCCL's, take", False),
  (
    "short_settings",
    "short parts under settings other than NCCL's take",
    False,
  ),
  ("long_settings", "long parts under settings other than NCCL's take", False),
  ("contention", "contention takes", True),
  ("products", "matmuls take", True),
  ("other_kernels", "other kernels take", True),
)


def times(step: step_lib.Step, configuration: step_lib.Configuration) -> Times:
  """Replays a step as predicted; in scenarios, on the first look-up of each."""
  measured = step.measured
  mean_us = step.timeline(configuration).step_time_us
  return Times(
    mean_us=mean_us,
    by_scenario=_Replays(step, configuration, mean_us),
    step_factors=None if measured is None else measured.step_factors,
    is_open=bool(step.unknown_calls),
  )


class _Replays(Mapping[scenario_lib.Scenario, float]):
  """Step times by scenario, replayed on demand: slow candidates need few."""

  def __init__(
    self,
    step: step_lib.Step,
    configuration: step_lib.Configuration,
    mean_us: float,
  ):
    self._step = step
    self._configuration = configuration
    self._scenarios = scenarios(step.cluster, step.measured)
    self._known: dict[scenario_lib.Scenario, float] = {}
    self._mean_us = mean_us

  def __getitem__(self, scenario: scenario_lib.Scenario) -> float:
    if scenario not in self._known:
      if scenario not in self._scenarios:
        raise KeyError(scenario)
      found_us = self._mean_us
      if self._step.may_differ(scenario):
        timeline = self._step.under(scenario).timeline(self._configuration)
        found_us = timeline.step_time_us
      self._known[scenario] = found_us
    return self._known[scenario]

  def __iter__(self) -> Iterator[scenario_lib.Scenario]:
    return iter(self._scenarios)

  def __len__(self) -> int:
    return len(self._scenarios)


def step_time(found: Times, missed: Spread | None = None) -> Estimate:
  """A step time with its range.

  Effects that no module shows, such as ranks that wait for each other, are a
  separate part. They do not affect gains, because every plan has them.

  Args:
    found: times of the step.
    missed: the spread of that part if no profile has it; that in errors.json by
      default.
  """
  whole = {
    scenario_lib.Scenario(
      name=f"steps take {in_words.off_by(factor)}", part="steps"
    ): found.mean_us * factor
    for factor in found.step_factors or (missed or spreads()["steps"]).factors
  }
  estimate = combined(found.mean_us, {**found.by_scenario, **whole})
  # Large spreads can add up to more than the mean.
  low = max(estimate.low, 0.0)
  return dataclasses.replace(estimate, low=low, is_open=found.is_open)


def gain(before: Times, after: Times) -> Estimate:
  """The gain in step time, with the same errors of the model in both times."""
  return combined(
    before.mean_us - after.mean_us,
    {
      scenario: before_us - after.by_scenario[scenario]
      for scenario, before_us in before.by_scenario.items()
    },
  )


def combined(
  mean: float, by_scenario: Mapping[scenario_lib.Scenario, float]
) -> Estimate:
  """A figure with its range, by the equation in the module's docstring."""
  least: dict[str, float] = {}
  most: dict[str, float] = {}
  for scenario, value in by_scenario.items():
    part = scenario.part
    least[part] = min(least.get(part, mean), value)
    most[part] = max(most.get(part, mean), value)
  return Estimate(
    mean=mean,
    low=mean - math.hypot(*(mean - value for value in least.values())),
    high=mean + math.hypot(*(value - mean for value in most.values())),
  )


def worst(before: Times, after: Times) -> tuple[scenario_lib.Scenario, float]:
  """The scenario in which a step gains least, and that gain."""
  gains = {scenario_lib.AS_PREDICTED: before.mean_us - after.mean_us}
  for scenario, before_us in before.by_scenario.items():
    gains[scenario] = before_us - after.by_scenario[scenario]
  scenario = min(gains, key=gains.__getitem__)
  return scenario, gains[scenario]
