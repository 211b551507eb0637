# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The least squares behind fit_paths.py and what it holds out.

Parameters are fitted by relative least squares with a weak prior, path by path
(see wire.Path), on rows of three kinds (path_rows.py): XLA's table
(table_rows.py), nccl-tests on one node (nccl_tests.py), and the smallest
collectives of a traced step (trace_rows.py). What is not the collective's own
is set apart: a module's launch is fitted with the first path of each system in
XLA's table, and what one thread of nccl-tests takes for a launch is what its
smallest rows take for each GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import math

import numpy as np
from scipy import optimize

from benchmarks.collectives import lone_collective
from benchmarks.collectives import path_rows
from benchmarks.collectives import path_starts as starts
from benchmarks.collectives import set_apart
from lagom_xla.costs import wire

# Weights of a row's relative error by its least bytes: repeats of short times
# scatter by a quarter, of long ones by a few per cent.
_WEIGHTS = ((2**22, 3.0), (lone_collective.LARGE_BYTES, 1.0), (0, 0.3))
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
_APART = "apart"

Fit = tuple[dict[str, dict[str, wire.Path]], set_apart.SetApart]


def fit(rows: Sequence[path_rows.Row]) -> Fit:
  """Paths by system and name, and what is set apart."""
  systems: dict[str, dict[str, wire.Path]] = {}
  apart = set_apart.SetApart(
    module_us={}, own_reduce_steps={}, launch_us=path_rows.launch_us(rows)
  )
  for system in _LIKE:
    systems[system], apart = fit_system(system, rows, systems, apart)
  return systems, apart


def refit(
  system: str, rows: Sequence[path_rows.Row], systems: Mapping[str, wire.Paths]
) -> tuple[dict[str, wire.Path], set_apart.SetApart]:
  """The paths of one system where `rows` lack some of what `fit` saw.

  Args:
    system: the only one of whose rows some are missing.
    rows: of all systems.
    systems: as fitted, from which those that it is like are taken.
  """
  apart = set_apart.SetApart(
    module_us={}, own_reduce_steps={}, launch_us=path_rows.launch_us(rows)
  )
  return fit_system(system, rows, systems, apart)


def fit_system(
  system: str,
  rows: Iterable[path_rows.Row],
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
  by_path: dict[str, list[path_rows.Row]] = {name: [] for name in starts.START}
  for row in rows:
    if row.model_system == system:
      by_path[row.path].append(row)
  found: dict[str, wire.Path] = {}
  # The first path's fit finds what the others' launches are.
  for name in starts.START:
    start = _start(system, name, systems)
    fixed = {**_tied(system, start), **starts.FIXED[system].get(name, {})}
    if alike := starts.AS_FITTED.get(name):
      fixed["channel_gbps"] = found[alike].channel_gbps
    start = {k: v for k, v in start.items() if k not in fixed}
    found[name], apart = _fit_path(
      by_path[name], (system, name), start, fixed, apart
    )
  return found, apart


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
  rows: Sequence[path_rows.Row],
  of: tuple[str, str],
  start: Mapping[str, float],
  fixed: Mapping[str, float],
  apart: set_apart.SetApart,
) -> tuple[wire.Path, set_apart.SetApart]:
  if not start:
    return wire.Path(**fixed), apart
  _, name = of
  shown = _SHOWN.get(of)
  if shown:
    start = {**start, _APART: shown[2]}
  weights = np.array([_weight(row) for row in rows])
  are_launches = [path_rows.is_launches(row) for row in rows]
  least = np.array([0.0 if are else -math.inf for are in are_launches])
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
      row.predict_us({name: path}, bare if are else apart) / row.time_us - 1
      for row, are in zip(rows, are_launches, strict=True)
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


def _weight(row: path_rows.Row) -> float:
  return next(w for least, w in _WEIGHTS if row.num_bytes >= least)
