# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The least squares behind fit_paths.py and what it holds out.

Parameters are fitted by relative least squares with a weak prior, path by path
(see wire.Path), on rows of three kinds: XLA's table (table_rows.py),
nccl-tests on one node (nccl_tests.py), and the smallest collectives of a traced
step (trace_rows.py). What is not the collective's own is set apart: a module's
launch is fitted with the first path of each system in XLA's table, and what one
thread of nccl-tests takes for a launch is what its smallest rows take for each
GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import math
import pathlib
from typing import Protocol

import numpy as np
from scipy import optimize

from benchmarks.collectives import nccl_tests
from benchmarks.collectives import path_starts as starts
from benchmarks.collectives import set_apart
from benchmarks.collectives import table_rows
from benchmarks.collectives import trace_rows
from lagom_xla.costs import wire

# Weights of a row's relative error by its least bytes: repeats of short times
# scatter by a quarter, of long ones by a few per cent.
_WEIGHTS = ((2**22, 3.0), (table_rows.LARGE_BYTES, 1.0), (0, 0.3))
# Relative errors beyond this count linearly.
_OUTLIER = 0.5
# How much a parameter's logarithm is held to its start; noisy rows need it.
_PRIOR_WEIGHT = 0.2
# The same of what only GB200's 41 rows show: other systems have eight or fewer,
# in which bytes count for more than hops.
_FEW_SHOW = ("ring.ll128", "hop_us")
_HELD_WEIGHT = 1.0
# Systems in the order of their fits, with the one from whose result the fit
# starts, so that a path that a system's rows do not show is like that one's.
_LIKE = {"gb200": None, "b200": "gb200", "h100": "gb200", "a100": "h100"}
# What is set apart of XLA's table, by system and the path that shows it: field
# of SetApart, key there, and start. A ring with LL shows best what launching a
# module takes: its start is held to NCCL's own, and there are rows of all sizes
# of group. H100's reductions take longer in the table than in nccl-tests of
# NCCL 2.29, by a time that goes with bytes per rank.
_SHOWN: Mapping[tuple[str, str], tuple[str, str, float]] = {
  ("gb200", "ring.ll"): ("module_us", "gb200", 7.0),
  ("b200", "ring.ll"): ("module_us", "b200", 7.0),
  ("h100", "ring.ll"): ("module_us", "h100", 7.0),
  ("h100", "ring.simple"): ("own_reduce_steps", "sm_90", 0.8),
}
# nccl-tests' rows that one thread's launches bound. Of the collective they show
# only that it takes no longer.
_MOST_LAUNCH_BYTES = 512 * 1024
_APART = "apart"

Fit = tuple[dict[str, dict[str, wire.Path]], set_apart.SetApart]


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


def fit(rows: Sequence[Row]) -> Fit:
  """Paths by system and name, and what is set apart."""
  systems: dict[str, dict[str, wire.Path]] = {}
  apart = set_apart.SetApart(
    module_us={}, own_reduce_steps={}, launch_us=launch_us(rows)
  )
  for system in _LIKE:
    systems[system], apart = fit_system(system, rows, systems, apart)
  return systems, apart


def refit(
  system: str, rows: Sequence[Row], systems: Mapping[str, wire.Paths]
) -> tuple[dict[str, wire.Path], set_apart.SetApart]:
  """The paths of one system where `rows` lack some of what `fit` saw.

  Args:
    system: the only one of whose rows some are missing.
    rows: of all systems.
    systems: as fitted, from which those that it is like are taken.
  """
  apart = set_apart.SetApart(
    module_us={}, own_reduce_steps={}, launch_us=launch_us(rows)
  )
  return fit_system(system, rows, systems, apart)


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


def fit_system(
  system: str,
  rows: Iterable[Row],
  systems: Mapping[str, wire.Paths],
  apart: set_apart.SetApart,
) -> tuple[dict[str, wire.Path], set_apart.SetApart]:
  """The paths of one system, and `apart` with its modules' launch.

  Args:
    system: which one.
    rows: those of other systems are left out.
    systems: the paths of the systems that it is like.
    apart: what is set apart so far.
  """
  by_path: dict[str, list[Row]] = {name: [] for name in starts.START}
  for row in rows:
    if row.model_system == system:
      by_path[row.path].append(row)
  found = {}
  # The first path's fit finds what the others' launches are.
  for name in starts.START:
    start = _start(system, name, systems)
    fixed = {**_tied(system, start), **starts.FIXED[system].get(name, {})}
    start = {k: v for k, v in start.items() if k not in fixed}
    found[name], apart = _fit_path(
      by_path[name], (system, name), start, fixed, apart
    )
  return found, apart


def launch_us(rows: Iterable[Row]) -> float:
  """What a launch takes: of each system the least, of these the mean.

  It is 0 where no rows show it.
  """
  by_system: dict[str, list[float]] = {}
  for row in rows:
    if isinstance(row, nccl_tests.Row) and _is_launches(row):
      each_us = row.time_us / row.key.num_ranks
      by_system.setdefault(row.system, []).append(each_us)
  least = [min(times) for times in by_system.values()]
  if not least:
    return 0.0
  return float(f"{np.exp(np.mean(np.log(least))):.3g}")


def _is_launches(row: Row) -> bool:
  is_test = isinstance(row, nccl_tests.Row)
  return is_test and row.num_bytes <= _MOST_LAUNCH_BYTES


def _start(
  system: str, name: str, systems: Mapping[str, wire.Paths]
) -> dict[str, float]:
  like = _LIKE[system]
  if like is None:
    return dict(starts.START[name])
  path = systems[like][name]
  return {field: getattr(path, field) for field in starts.START[name]}


def _tied(system: str, start: Mapping[str, float]) -> dict[str, float]:
  """What a channel copies on an A100: a share of what it does on an H100."""
  if system != "a100":
    return {}
  return {
    field: float(f"{value * starts.AMPERE_CHANNEL_SHARE:.4g}")
    for field, value in start.items()
    if field.endswith("channel_gbps")
  }


def _fit_path(
  rows: Sequence[Row],
  of: tuple[str, str],
  start: Mapping[str, float],
  fixed: Mapping[str, float],
  apart: set_apart.SetApart,
) -> tuple[wire.Path, set_apart.SetApart]:
  _, name = of
  shown = _SHOWN.get(of)
  if shown:
    start = {**start, _APART: shown[2]}
  weights = np.array([_weight(row) for row in rows])
  least = np.array([0.0 if _is_launches(row) else -math.inf for row in rows])
  prior_weights = np.array([_prior_weight(name, field) for field in start])
  origin = np.log(np.array(list(start.values())))

  def values(x: np.ndarray) -> tuple[wire.Path, set_apart.SetApart]:
    named = {
      key: float(f"{value:.4g}" if is_final else value)
      for key, value in zip(start, np.exp(x).tolist(), strict=True)
    }
    if not shown:
      return wire.Path(**named, **fixed), apart
    value = named.pop(_APART)
    return wire.Path(**named, **fixed), apart.having(*shown[:2], value)

  def residuals(x: np.ndarray) -> np.ndarray:
    path, apart = values(x)
    bare = dataclasses.replace(apart, launch_us=0.0)
    errors = [
      row.predict_us({name: path}, bare if _is_launches(row) else apart)
      / row.time_us
      - 1
      for row in rows
    ]
    return np.concatenate(
      [weights * np.maximum(errors, least), prior_weights * (x - origin)]
    )

  is_final = False
  found = optimize.least_squares(
    residuals, origin, loss="soft_l1", f_scale=_OUTLIER
  )
  is_final = True
  return values(found.x)


def _prior_weight(name: str, field: str) -> float:
  held = (name, field) == _FEW_SHOW
  return _HELD_WEIGHT if held else _PRIOR_WEIGHT


def _weight(row: Row) -> float:
  return next(w for least, w in _WEIGHTS if row.num_bytes >= least)
