# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows that the parameters of paths are fitted to, and what launches they show.

One thread of nccl-tests launches for all of its GPUs, which bounds its smallest
rows.
"""

from __future__ import annotations

from collections.abc import Iterable
import pathlib
from typing import Protocol

import numpy as np

from benchmarks.collectives import nccl_tests
from benchmarks.collectives import set_apart
from benchmarks.collectives import trace_rows
from lagom_xla.costs import wire

# nccl-tests' rows that one thread's launches bound. Of the collective they show
# only that it takes no longer.
_MOST_LAUNCH_BYTES = 512 * 1024


class Row(Protocol):
  """A measured collective, of XLA's table or of nccl-tests."""

  @property
  def model_system(self) -> str:
    """The system whose parameters it shows."""
    ...

  @property
  def path(self) -> str:
    """The name of the parameters that it shows."""
    ...

  @property
  def num_bytes(self) -> int:
    """Its size, as NCCL counts it."""
    ...

  @property
  def time_us(self) -> float:
    """As measured."""
    ...

  def predict_us(
    self,
    paths: wire.Paths | None = None,
    apart: set_apart.SetApart | None = None,
  ) -> float:
    """As modelled."""
    ...


def other_rows(data: pathlib.Path) -> list[Row]:
  """The rows that a fit sees beside XLA's table.

  Args:
    data: the folder with nccl_tests, and with pax_a100 if its step is to count.
  """
  step = data / "pax_a100"
  tests = nccl_tests.rows(data / "nccl_tests")
  return [
    *(row for row in tests if row.cluster.num_nodes == 1 and row.shows_path),
    *(trace_rows.read(step) if step.is_dir() else ()),
  ]


def launch_us(rows: Iterable[Row]) -> float:
  """What a launch takes: of each system the least, of these the mean.

  It is 0 where no rows show it.
  """
  by_system: dict[str, list[float]] = {}
  for row in rows:
    if isinstance(row, nccl_tests.Row) and is_launches(row):
      each_us = row.time_us / row.key.num_ranks
      by_system.setdefault(row.system, []).append(each_us)
  least = [min(times) for times in by_system.values()]
  if not least:
    return 0.0
  return float(f"{np.exp(np.mean(np.log(least))):.3g}")


def is_launches(row: Row) -> bool:
  """Whether a row shows what launches take, and not its collective."""
  is_test = isinstance(row, nccl_tests.Row)
  return is_test and row.num_bytes <= _MOST_LAUNCH_BYTES
