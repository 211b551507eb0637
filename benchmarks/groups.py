# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Groups of comparisons of predictions with measurements, and their errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
  """One measured figure beside its prediction, in one unit."""

  what: str
  measured: float
  predicted: float

  @property
  def error(self) -> float:
    """Relative to what was measured."""
    return abs(self.predicted - self.measured) / abs(self.measured)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Group:
  """Relative errors of comparisons of one kind.

  Groups that must match exactly give the share of mismatches as median, p90
  and worst, and have no comparisons.
  """

  name: str
  n: int
  median: float
  p90: float
  worst: float
  worst_case: str
  comparisons: Sequence[Comparison] = ()

  def to_dict(self) -> dict[str, object]:
    """What `--format=json` prints of it."""
    return {
      name: getattr(self, name)
      for name in ("name", "n", "median", "p90", "worst")
    }


def of_comparisons(name: str, comparisons: Sequence[Comparison]) -> Group:
  """The group of these comparisons; there must be some."""
  errors = np.array([c.error for c in comparisons])
  worst = comparisons[int(errors.argmax())]
  return Group(
    name=name,
    n=len(comparisons),
    median=float(np.median(errors)),
    p90=float(np.quantile(errors, 0.9)),
    worst=float(errors.max()),
    worst_case=(
      f"{worst.what}: measured {worst.measured:.4g},"
      f" predicted {worst.predicted:.4g}"
    ),
    comparisons=comparisons,
  )


def of_matches(name: str, mismatches: Sequence[str], n: int) -> Group:
  """The group of `n` exact comparisons, of which some did not match."""
  share = len(mismatches) / n
  return Group(
    name=name,
    n=n,
    median=share,
    p90=share,
    worst=share,
    worst_case=mismatches[0] if mismatches else "",
  )


def show(found: Iterable[Group]) -> None:
  """Prints how large the errors of groups are, a line each."""
  for group in found:
    print(
      f"{group.name:50} n {group.n:4}  median {group.median:6.1%}"
      f"  p90 {group.p90:6.1%}  worst {group.worst:7.1%}"
    )
