# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The uncertainty of predictions, from the model's errors on measurements.

fitted/errors.json has, for each part of the model, what 90 % of its errors are
within, over figures that no fit saw where there are such. benchmarks/errors.py
writes it.

A scenario turns one part to the end of its spread, in one direction, everywhere
at once; a step is replayed in all of them. So a part's error is taken to be
common to a whole step, which is the worst that it can be. Parts are measured
apart from each other and taken to be independent, so their effects add in
quadrature:

    low = t - sqrt(sum over parts of max(0, t - least t of the part)^2)

and high likewise. For what one plan gains over another t is the difference of
both in the same scenario: what is wrong in both cancels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import dataclasses
import functools
import json
import math
import pathlib

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import scenario as scenario_lib
from lagom_xla.costs import step as step_lib

_FITTED = pathlib.Path(__file__).with_name("fitted") / "errors.json"

# The percentile of fewer figures says little: such a fabric gets no smaller a
# spread than all fabrics together.
LEAST_FIGURES = 20


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
  """Errors of a part of the model, as ln(measured / predicted).

  Attributes:
    groups: of what, in the words of `python -m benchmarks.accuracy`.
    n: how many figures.
    median: of the errors' size.
    p90: the 90th percentile of that.
    low: the 5th percentile of the errors, 0 at most.
    bias: the median error; above 0 where the model is too fast.
    high: the 95th percentile of the errors, 0 at least.
    is_held_out: whether no fit saw the figures.
  """

  groups: tuple[str, ...]
  n: int
  median: float
  p90: float
  low: float
  bias: float
  high: float
  is_held_out: bool


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
  """A predicted figure, and what it may be.

  Attributes:
    mean: as predicted.
    low: the lower end of its 90 % range.
    high: the upper end.
  """

  mean: float
  low: float
  high: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Times:
  """Step times of one configuration.

  Attributes:
    mean_us: as predicted.
    by_scenario: in each of the scenarios of its cluster.
  """

  mean_us: float
  by_scenario: Mapping[scenario_lib.Scenario, float]


@functools.cache
def spreads() -> Mapping[str, Spread]:
  """The spreads of fitted/errors.json, by part."""
  raw = json.loads(_FITTED.read_text(encoding="utf-8"))
  return {
    part: Spread(**(figures | {"groups": tuple(figures["groups"])}))
    for part, figures in raw["parts"].items()
  }


def collective_spread(
  cluster: cluster_lib.Cluster, *, is_between_nodes: bool
) -> Spread:
  """How well collectives of 64 KiB and more are known on a cluster.

  Between nodes it is the spread of the cluster's fabric; that of all fabrics
  where that is larger and the fabric has fewer than `LEAST_FIGURES` figures, or
  none. Where the cluster was calibrated, it is the spread of systems that were
  calibrated by a third of their rows, over the other rows, if that is smaller:
  few rows calibrate a system badly, and nobody has to use what they give.

  Args:
    cluster: which.
    is_between_nodes: whether the collectives span nodes.
  """
  part = "between_nodes" if is_between_nodes else "within_nodes"
  fabric = cluster.node.fabric if is_between_nodes else ""
  found = _spread(part, fabric)
  if _is_calibrated(cluster, is_between_nodes=is_between_nodes):
    calibrated = _spread(f"{part}.calibrated", fabric)
    return min(found, calibrated, key=lambda spread: spread.p90)
  return found


def _spread(part: str, fabric: str) -> Spread:
  """Of a fabric, or of all where it is hardly known."""
  pooled = spreads()[part]
  own = spreads().get(f"{part}.{fabric}")
  if own is None or (own.n < LEAST_FIGURES and own.p90 < pooled.p90):
    return pooled
  return own


def _is_calibrated(
  cluster: cluster_lib.Cluster, *, is_between_nodes: bool
) -> bool:
  if cluster.calibration is None:
    return False
  factors = cluster.calibration.of(2 if is_between_nodes else 1)
  return factors != cluster_lib.Factors()


@functools.cache
def scenarios(
  cluster: cluster_lib.Cluster,
) -> tuple[scenario_lib.Scenario, ...]:
  """The ways in which the model may be wrong on a cluster."""
  return tuple(_scenarios(cluster))


def _scenarios(
  cluster: cluster_lib.Cluster,
) -> Iterator[scenario_lib.Scenario]:
  yield scenario_lib.Scenario(
    name="collectives below 64 KiB cost nothing",
    part="small_collectives",
    small_collectives=0.0,
  )
  for part, what, is_both_ways in _PARTS:
    if part == "between_nodes" and cluster.num_nodes == 1:
      continue
    if part in ("within_nodes", "between_nodes"):
      spread = collective_spread(
        cluster, is_between_nodes=part == "between_nodes"
      )
    else:
      spread = spreads()[part]
    factors = [math.exp(spread.high)]
    if is_both_ways:
      factors.append(math.exp(spread.low))
    for factor in factors:
      yield scenario_lib.Scenario(
        name=f"{what} {factor:.2f} times", part=part, **{part: factor}
      )


# (part, what is how many times as predicted, whether it may be less, too).
# Small collectives that cost less are a scenario of their own, and no plan may
# gain from settings that turn out faster than NCCL's own.
_PARTS = (
  ("small_collectives", "collectives below 64 KiB take", False),
  ("within_nodes", "collectives within nodes take", True),
  ("between_nodes", "collectives between nodes take", True),
  ("few_channels", "a channel, where there are few, takes", False),
  ("short_settings", "short parts as NCCL would not choose take", False),
  ("long_settings", "long parts as NCCL would not choose take", False),
  ("contention", "kernels and collectives lose to each other", True),
  ("products", "matrix products take", True),
  ("other_kernels", "other kernels take", True),
)


def times(step: step_lib.Step, configuration: step_lib.Configuration) -> Times:
  """Replays a step as predicted and in every scenario."""
  return Times(
    mean_us=step.timeline(configuration).step_time_us,
    by_scenario={
      scenario: step.under(scenario).timeline(configuration).step_time_us
      for scenario in scenarios(step.cluster)
    },
  )


def step_time(found: Times) -> Estimate:
  """A step time with its range."""
  return combined(found.mean_us, found.by_scenario)


def gain(before: Times, after: Times) -> Estimate:
  """What a step gains, the same part of the model being wrong in both.

  Args:
    before: of what it is compared with.
    after: of the same cluster.
  """
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
  """A figure with its range; the module's docstring has the equation."""
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
