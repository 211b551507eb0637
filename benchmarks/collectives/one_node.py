# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Held-out errors of lone collectives inside one node, on nccl-tests.

Each site's systems are predicted by a fit (path_fit.py) that saw XLA's
table and every other site, but not this one. A system that the shipped figures
were not fitted to is predicted by these. Groups are those of nccl_tests.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import pathlib

from benchmarks import groups
from benchmarks.collectives import lone_collective
from benchmarks.collectives import nccl_tests
from benchmarks.collectives import path_fit
from benchmarks.collectives import path_rows
from benchmarks.collectives import set_apart
from benchmarks.collectives import table_rows


def compare(data: pathlib.Path) -> Iterator[groups.Group]:
  """Groups of rows on one node, each site's by a fit without it.

  Args:
    data: the folder that holds nccl_tests.
  """
  predicted = held_out(table_rows.read(), path_rows.other_rows(data))
  unfitted = [
    (row, row.predict_us())
    for row in nccl_tests.rows(data / "nccl_tests")
    if row.cluster.num_nodes == 1 and not row.shows_path
  ]
  yield from nccl_tests.by_what_fits_saw(
    "nccl-tests, held out", [*predicted, *unfitted], set_apart.seen_systems()
  )


def held_out(
  table: Sequence[lone_collective.Row], others: Sequence[path_rows.Row]
) -> list[tuple[nccl_tests.Row, float]]:
  """Rows of nccl-tests with times by fits that did not see their site.

  Args:
    table: XLA's, which every fit sees.
    others: rows of nccl-tests on one node, and of steps.
  """
  tests = [row for row in others if isinstance(row, nccl_tests.Row)]
  seen = set_apart.seen_systems()
  predicted = [
    (row, row.predict_us()) for row in tests if row.system not in seen
  ]
  tests = [row for row in tests if row.system in seen]
  if not tests:
    return predicted
  others = [
    row
    for row in others
    if not isinstance(row, nccl_tests.Row) or row.system in seen
  ]
  systems, _ = path_fit.fit([*table, *others])
  for site, name in sorted({(_site(row), row.model_system) for row in tests}):
    kept = [row for row in others if _site(row) != site]
    paths, apart = path_fit.refit(name, [*table, *kept], systems)
    predicted += [
      (row, row.predict_us(paths, apart))
      for row in tests
      if (_site(row), row.model_system) == (site, name)
    ]
  return predicted


def _site(row: path_rows.Row) -> str:
  """What precedes the system's own part of its name; "" for a step's rows."""
  if not isinstance(row, nccl_tests.Row):
    return ""
  return row.system.partition("-")[0]
