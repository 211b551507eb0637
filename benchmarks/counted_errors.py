# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Errors of the cost model as they count: which figures make one of them.

One error counts what a plan can choose or a step adds up:

- of collectives, a measured collective;
- of contention, what all kernels lose beside one collective of a traced step,
  for a setting is given to a collective; it weighs as much as that loss;
- of kernels, all of a step that ran alone, with classes of alike kernels drawn
  anew from those of the step (a bootstrap), for only their sum counts. Scatters
  are left out: what they take depends on how often their indices repeat;
- of steps, a whole one that was predicted from its module. What it takes beyond
  its parts, such as ranks that wait for each other, counts in step times alone.

Two errors count both ways: of the ratio of two algorithms, because which is
NCCL's own differs by size and GPU; and of a step's kernels, because in which
direction the next step's are wrong the few traced ones do not tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
import dataclasses

import numpy as np

from benchmarks import groups as groups_lib

# Slowdowns of less are the noise of a trace.
_LEAST_LOSS = 0.05

# Steps made of each traced one, by drawing from its kernels; the seed is fixed.
_NUM_DRAWS = 1000


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Errors:
  """ln(measured / predicted) of some figures, and what each weighs.

  Attributes:
    n: how many figures they are made of.
    logs: the errors.
    weights: of each.
    has_sign: whether another figure's error is likely to have the same sign.
  """

  n: int
  logs: np.ndarray
  weights: np.ndarray
  has_sign: bool = True


def of_group(part: str, group: groups_lib.Group) -> Errors:
  """What a group of figures shows of a part of the model."""
  return _BY_PART.get(part, _of_figures)(group)


def _of_figures(group: groups_lib.Group) -> Errors:
  logs = np.log([c.measured / c.predicted for c in group.comparisons])
  return Errors(n=len(logs), logs=logs, weights=np.ones_like(logs))


def _without_sign(group: groups_lib.Group) -> Errors:
  return dataclasses.replace(_of_figures(group), has_sign=False)


def _of_losses(group: groups_lib.Group) -> Errors:
  """By collective, of ratios that are named "KERNEL beside COLLECTIVE"."""
  beside: dict[str, list[groups_lib.Comparison]] = {}
  for comparison in group.comparisons:
    collective = comparison.what.rpartition(" beside ")[2]
    beside.setdefault(collective, []).append(comparison)

  def lost(ratios: Iterable[float]) -> float:
    return sum(max(ratio - 1, _LEAST_LOSS) for ratio in ratios)

  predicted = [lost(c.predicted for c in found) for found in beside.values()]
  measured = [lost(c.measured for c in found) for found in beside.values()]
  return Errors(
    n=len(beside),
    logs=np.log(np.divide(measured, predicted)),
    weights=np.maximum(predicted, measured),
  )


def _of_sums(group: groups_lib.Group) -> Errors:
  """Of the sums of figures that are drawn from these."""
  predicted = np.array([c.predicted for c in group.comparisons])
  measured = np.array([c.measured for c in group.comparisons])
  n = len(measured)
  drawn = np.random.default_rng(0).integers(n, size=(_NUM_DRAWS, n))
  logs = np.log(measured[drawn].sum(axis=1) / predicted[drawn].sum(axis=1))
  return Errors(n=n, logs=logs, weights=np.ones_like(logs), has_sign=False)


_BY_PART: Mapping[str, Callable[[groups_lib.Group], Errors]] = {
  "short_settings": _without_sign,
  "long_settings": _without_sign,
  "contention": _of_losses,
  "products": _of_sums,
  "other_kernels": _of_sums,
}
