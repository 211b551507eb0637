# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ratios of measured to predicted times, by kind."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator
import dataclasses
import statistics


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
  """How far apart measurement and prediction are, for one kind.

  Attributes:
    kind: of kernels or collectives.
    n: how many of the module were measured.
    measured_us: what they take alone per step.
    predicted_us: what they were predicted to.
    low: measured over predicted, the least of all.
    median: the median of those.
    high: the most.
  """

  kind: str
  n: int
  measured_us: float
  predicted_us: float
  low: float
  median: float
  high: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
  """What a kernel or collective takes per step, measured and predicted."""

  kind: str
  measured_us: float
  predicted_us: float


def of_pairs(pairs: Iterable[Pair]) -> Iterator[Ratio]:
  """How far apart they are, by kind."""
  by_kind = collections.defaultdict(list)
  for pair in pairs:
    if pair.predicted_us and pair.measured_us:
      by_kind[pair.kind].append(pair)
  for kind, alike in sorted(by_kind.items()):
    ratios = [pair.measured_us / pair.predicted_us for pair in alike]
    yield Ratio(
      kind=kind,
      n=len(alike),
      measured_us=sum(pair.measured_us for pair in alike),
      predicted_us=sum(pair.predicted_us for pair in alike),
      low=min(ratios),
      median=statistics.median(ratios),
      high=max(ratios),
    )
