# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Intervals of the ratio of two step times that were measured side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses

import numpy as np

# Launch by launch: form -> host -> seconds of each round.
Launch = Mapping[str, Sequence[Sequence[float]]]

_NUM_RESAMPLES = 2000


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
  """A ratio of medians, with the ends of its 95 % bootstrap interval."""

  ratio: float
  low: float
  high: float


def slower_host(launch: Launch, form: str) -> np.ndarray:
  """Seconds of each round on the host that took longer."""
  return np.max(np.asarray(launch[form], float), axis=0)


def ratio(launches: Sequence[Launch], form: str, over: str) -> Ratio:
  """How long a form takes, over another.

  In each launch both forms took turns, so the rounds are pairs: a resample
  takes the same rounds of both. Launches differ among themselves, so they are
  resampled as well. Of each launch counts the ratio of medians; of several, the
  geometric mean.

  Args:
    launches: at least one, each with both forms.
    form: whose time is the numerator.
    over: whose time is the denominator.
  """
  pairs = [
    (slower_host(launch, form), slower_host(launch, over))
    for launch in launches
  ]
  rng = np.random.default_rng(0)
  found = []
  for _ in range(_NUM_RESAMPLES):
    chosen = rng.integers(len(pairs), size=len(pairs))
    found.append(_ratio([_resampled(pairs[i], rng) for i in chosen]))
  low, high = np.quantile(found, (0.025, 0.975))
  return Ratio(ratio=_ratio(pairs), low=float(low), high=float(high))


def _resampled(
  pair: tuple[np.ndarray, np.ndarray], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
  rounds = rng.integers(len(pair[0]), size=len(pair[0]))
  return pair[0][rounds], pair[1][rounds]


def _ratio(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
  logs = [np.log(np.median(a) / np.median(b)) for a, b in pairs]
  return float(np.exp(np.mean(logs)))


def median(launches: Sequence[Launch], form: str) -> float:
  """Seconds of a form: the median over the launches of each one's median."""
  return float(
    np.median([np.median(slower_host(launch, form)) for launch in launches])
  )
