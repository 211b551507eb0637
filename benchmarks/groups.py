# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Groups of comparisons between predictions and measurements, with errors."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Sequence
import dataclasses

import numpy as np

from benchmarks import table as table_lib


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
  """One measured figure and its prediction, in the same unit."""

  what: str
  measured: float
  predicted: float

  @property
  def error(self) -> float:
    """Error relative to the measurement."""
    return abs(self.predicted - self.measured) / abs(self.measured)

  def __str__(self) -> str:
    return (
      f"{self.what}: measured {self.measured:.4g},"
      f" predicted {self.predicted:.4g}"
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Group:
  """Relative errors of comparisons of one kind.

  Groups of exact matches have the share of mismatches as median, p90 and worst,
  and no comparisons.
  """

  name: str
  n: int
  median: float
  p90: float
  worst: float
  worst_case: str
  comparisons: Sequence[Comparison] = ()

  @property
  def row(self) -> table_lib.Row:
    """The row of its errors."""
    names = ("n", "median", "p90", "worst", "worst_case")
    return {"group": self.name, **{name: getattr(self, name) for name in names}}


def of_comparisons(name: str, comparisons: Sequence[Comparison]) -> Group:
  """The group of these comparisons, at least one."""
  errors = np.array([c.error for c in comparisons])
  return Group(
    name=name,
    n=len(comparisons),
    median=float(np.median(errors)),
    p90=float(np.quantile(errors, 0.9)),
    worst=float(errors.max()),
    worst_case=str(comparisons[int(errors.argmax())]),
    comparisons=comparisons,
  )


def of_matches(name: str, mismatches: Sequence[str], n: int) -> Group:
  """The group of `n` exact comparisons with these mismatches."""
  share = len(mismatches) / n
  return Group(
    name=name,
    n=n,
    median=share,
    p90=share,
    worst=share,
    worst_case=mismatches[0] if mismatches else "",
  )


def by_name(
  title: str, named: Iterable[tuple[str, Comparison]]
) -> Iterator[Group]:
  """Groups by name; each is called by the title and its name."""
  found = collections.defaultdict(list)
  for name, comparison in named:
    found[name].append(comparison)
  for name in sorted(found):
    yield of_comparisons(title + name, found[name])


def table(title: str, found: Iterable[Group]) -> table_lib.Table:
  """The table of the groups' errors."""
  return table_lib.Table(
    name="accuracy",
    title=title,
    columns=table_lib.columns(
      group="", n="", median=".1%", p90=".1%", worst=".1%", worst_case=""
    ),
    rows=[group.row for group in found],
  )


def show(title: str, found: Iterable[Group]) -> None:
  """Prints that table."""
  table_lib.show([table(title, found)], "text")
