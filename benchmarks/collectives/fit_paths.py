# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fits the parameters of costs/wire/ to measured lone collectives.

  python -m benchmarks.collectives.fit_paths --data FOLDER [--write]
      [--hold_out]

FOLDER holds nccl_tests and pax_a100. --write puts the parameters into
lagom_xla/costs/fitted/collective.json. --hold_out prints the errors on rows of
XLA's table that a fit did not see. benchmarks.accuracy prints those on
nccl-tests, with each site predicted by a fit without it.

Parameters are fitted path by path (see wire.Path), by relative least squares
with a weak prior. Time outside of the collective is modeled separately: a
module's launch is fitted with the first path of each system in XLA's table, and
the thread of nccl-tests that launches for each of its GPUs bounds the smallest
rows. The start times of rings with LL and LL128 begin at NCCL's own launch
latencies (ncclTunerConstants, in costs/nccl/model.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import math
import pathlib
import statistics
from typing import Any

import numpy as np
from scipy import optimize

from benchmarks import data as data_lib
from benchmarks import groups
from benchmarks.collectives import channel_rows
from benchmarks.collectives import lone_collective
from benchmarks.collectives import nccl_tests
from lagom_xla import costs
from lagom_xla.costs import wire

# Largest rows of nccl-tests that the launches of one thread limit. They show
# only an upper bound of the collective's time.
_MOST_LAUNCH_BYTES = 512 * 1024


Row = lone_collective.MeasuredCall


def other_rows(data: pathlib.Path) -> list[Row]:
  """The rows of a fit besides XLA's table."""
  step = data / "pax_a100"
  tests = nccl_tests.rows(data / "nccl_tests")
  return [
    *(row for row in tests if row.cluster.num_nodes == 1 and row.shows_path),
    *(lone_collective.read_trace(step) if step.is_dir() else ()),
  ]


def launches_us(rows: Iterable[Row]) -> tuple[float, float]:
  """Time of a launch, and its increase per channel, in microseconds.

  The first is the geometric mean over systems of each system's minimum, the
  second the median. Both are 0 if no rows show them.
  """
  found: dict[tuple[str, str], list[tuple[int, float]]] = {}
  for row in rows:
    if isinstance(row, nccl_tests.Row) and is_launches(row):
      each_us = row.time_us / row.key.num_ranks
      of = found.setdefault((row.system, row.key.kind), [])
      of.append((row.setting.num_channels, each_us))
  slopes = [
    (most[1] - least[1]) / (most[0] - least[0])
    for least, most in ((min(of), max(of)) for of in found.values())
    if most[0] > least[0]
  ]
  if not slopes:
    return 0.0, 0.0
  channel_us = float(f"{statistics.median(slopes):.2g}")
  by_system: dict[str, float] = {}
  for (system, _), of in found.items():
    least_us = min(us - channel_us * channels for channels, us in of)
    by_system[system] = min(least_us, by_system.get(system, math.inf))
  launch_us = statistics.geometric_mean(by_system.values())
  return float(f"{launch_us:.3g}"), channel_us


def is_launches(row: Row) -> bool:
  """Whether a row shows the time of launches instead of the collective's."""
  is_test = isinstance(row, nccl_tests.Row)
  return is_test and row.key.num_bytes <= _MOST_LAUNCH_BYTES


# Initial values of the first system's fit, by path.
_START: Mapping[str, Mapping[str, float]] = {
  "ring.ll": {
    "start_us": 6.6,
    "hop_us": 1.4,
    "channel_gbps": 8,
    "reducing_channel_gbps": 6,
    "first_bytes": 4096,
  },
  # At the initial values links must be the limit, not channels; otherwise the
  # fit has no gradient for them.
  "ring.ll128": {"start_us": 14, "hop_us": 1.2, "link_efficiency": 0.65},
  "ring.simple": {
    "start_us": 22,
    "hop_us": 0.5,
    "link_efficiency": 0.96,
    "own_gather_steps": 0.3,
    "own_reduce_steps": 0.7,
  },
  "permute.ll": {"start_us": 8, "channel_gbps": 5},
  "permute.simple": {
    "start_us": 10,
    "channel_gbps": 20,
    "lone_channel_gbps": 31,
    "link_efficiency": 0.9,
  },
  "nvls.simple": {
    "start_us": 14,
    "hop_us": 6,
    "link_efficiency": 0.75,
    "handshake_us": 1.5,
  },
  "nvls_gather.simple": {
    "start_us": 14,
    "hop_us": 3,
    "link_efficiency": 0.75,
    "handshake_us": 1.5,
  },
  "exchange.ll": {
    "start_us": 8,
    "hop_us": 1.1,
    "channel_gbps": 5,
    "shadowed_peers": 24,
  },
  "exchange.simple": {
    "start_us": 14,
    "hop_us": 0.6,
    "channel_gbps": 22,
    "link_efficiency": 0.9,
    "own_gather_steps": 0.1,
  },
  "exchange_in_host.ll": {"start_us": 18, "channel_gbps": 8},
  "exchange_in_host.simple": {
    "start_us": 18,
    "channel_gbps": 22,
    "link_efficiency": 0.9,
    "own_gather_steps": 0.1,
  },
  # Without rows: all parameters are fixed below.
  "tree.ll": {},
  "tree.ll128": {},
  "tree.simple": {},
}

# Channel rate of A100 over H100: NCCL's perChMaxTreeBws of one node, 24 and
# 38.7 GB/s (src/graph/tuning.cc). A100s only have rows of all-reduces, which do
# not separate a gather's channels from a reduction's.
_AMPERE_SHARE = 24.0 / 38.7

# Channel rates in GB/s do not show in the fitted rows, where all channels
# together fill the links. Rings and trees have the rates of channel_rows.py;
# GB200s have those of B300s, and A100s their share of H200s'. No row shows the
# limit of a tree on Blackwell: GB200s on three racks reach 253 GB/s of the
# buffer with 16 channels (NCCL's issue 1801), where H200s would reach half. A
# gather through NVLS moves data in one direction, like one-way permutes of four
# channels, which reach 116 and 130 GB/s with their copies. Simple chunks of a
# ring are too large to show their handshake, so it is that of a hop.
_SHOWN_GBPS = channel_rows.channels_gbps()
_HOPPER_GBPS = _SHOWN_GBPS["h100"]
_BLACKWELL_TREES = 2.0
_BLACKWELL_GBPS = {
  **{path: _BLACKWELL_TREES * gbps for path, gbps in _HOPPER_GBPS.items()},
  **_SHOWN_GBPS["b200"],
}
_AMPERE_GBPS = {
  path: round(gbps * _AMPERE_SHARE, 1) for path, gbps in _HOPPER_GBPS.items()
}
_HANDSHAKE_US = 1.5
_FIXED: Mapping[str, Mapping[str, Mapping[str, float]]] = {
  system: {
    "ring.ll128": {
      "channel_gbps": shown_gbps["ring.ll128"],
      "reducing_channel_gbps": shown_gbps["ring.ll128"],
    },
    "ring.simple": {
      "channel_gbps": shown_gbps["ring.simple"],
      "reducing_channel_gbps": shown_gbps["ring.simple"],
      "handshake_us": _HANDSHAKE_US,
    },
    "tree.ll": {"channel_gbps": shown_gbps["tree.ll"]},
    "tree.ll128": {"channel_gbps": shown_gbps["tree.ll128"]},
    "tree.simple": {
      "channel_gbps": shown_gbps["tree.simple"],
      "handshake_us": _HANDSHAKE_US,
    },
    "nvls_gather.simple": {"channel_gbps": one_way_gbps},
    "permute.simple": {"handshake_us": _HANDSHAKE_US},
    "exchange.simple": {"handshake_us": _HANDSHAKE_US},
    "exchange_in_host.simple": {"handshake_us": _HANDSHAKE_US},
  }
  for system, shown_gbps, one_way_gbps in (
    ("gb200", _BLACKWELL_GBPS, 32.5),
    ("b200", _BLACKWELL_GBPS, 32.5),
    ("h100", _HOPPER_GBPS, 29.0),
    ("a100", _AMPERE_GBPS, round(29.0 * _AMPERE_SHARE, 1)),
  )
}

# Path -> the path whose fitted channel rate it gets. In an all-reduce through
# the NVLink switch, a channel copies in and out at once, as in a permute around
# a ring.
_AS_FITTED: Mapping[str, str] = {"nvls.simple": "permute.simple"}


# Weights of relative errors, by the least bytes of a row: repeated measurements
# of short times vary by a quarter, of long ones by a few percent.
_WEIGHTS = ((2**22, 3.0), (lone_collective.LARGE_BYTES, 1.0), (0, 0.3))
# Larger relative errors count linearly.
_OUTLIER = 0.5
# Weight of the prior on a parameter's logarithm, which noisy rows need.
_PRIOR_WEIGHT = 0.2
# The same for a parameter that only GB200's 41 rows show. Other systems have
# eight rows or fewer, in which bytes matter more than hops.
_FEW_SHOW = ("ring.ll128", "hop_us")
_HELD_WEIGHT = 1.0
# Systems in the order of their fits -> the system whose result is the start, so
# that a path without rows is like that of the other system.
_LIKE = {"gb200": None, "b200": "gb200", "h100": "gb200", "a100": "h100"}
# Parameters of XLA's table besides the path's, by system and the path that
# shows them: field of SetApart, key there, and initial value. A ring with LL
# shows a module's launch best: its start time has a prior at NCCL's own, and
# there are rows of all group sizes. In the table, H100's reductions take longer
# than in nccl-tests of NCCL 2.29, by a time proportional to bytes per rank.
_SHOWN: Mapping[tuple[str, str], tuple[str, str, float]] = {
  ("gb200", "ring.ll"): ("module_us", "gb200", 7.0),
  ("b200", "ring.ll"): ("module_us", "b200", 7.0),
  ("h100", "ring.ll"): ("module_us", "h100", 7.0),
  ("h100", "ring.simple"): ("own_reduce_steps", "sm_90", 0.8),
}
_APART = "apart"

Fit = tuple[dict[str, dict[str, wire.Path]], lone_collective.SetApart]


def fit(rows: Sequence[Row]) -> Fit:
  """Fits the paths, by system and name, and the SetApart."""
  systems: dict[str, dict[str, wire.Path]] = {}
  apart = _apart(rows)
  for system in _LIKE:
    systems[system], apart = fit_system(system, rows, systems, apart)
  return systems, apart


def _apart(rows: Iterable[Row]) -> lone_collective.SetApart:
  launch_us, channel_us = launches_us(rows)
  return lone_collective.SetApart(
    module_us={},
    own_reduce_steps={},
    launch_us=launch_us,
    launch_channel_us=channel_us,
  )


def fit_system(
  system: str,
  rows: Iterable[Row],
  systems: Mapping[str, wire.Paths],
  apart: lone_collective.SetApart,
) -> tuple[dict[str, wire.Path], lone_collective.SetApart]:
  """Fits the paths of one system; also returns `apart` with its module launch.

  Rows of other systems are ignored. `systems` has the paths of similar systems.
  """
  by_path: dict[str, list[Row]] = {name: [] for name in _START}
  for row in rows:
    if row.model_system == system:
      by_path[row.path].append(row)
  found: dict[str, wire.Path] = {}
  # The first path's fit determines the launch of the others.
  for name in _START:
    start = dict(_START[name])
    if like := _LIKE[system]:
      start = {field: getattr(systems[like][name], field) for field in start}
    fixed = {**_tied(system, start), **_FIXED[system].get(name, {})}
    if alike := _AS_FITTED.get(name):
      fixed["channel_gbps"] = found[alike].channel_gbps
    start = {k: v for k, v in start.items() if k not in fixed}
    found[name], apart = _fit_path(
      by_path[name], (system, name), start, fixed, apart
    )
  return found, apart


def _tied(system: str, start: Mapping[str, float]) -> dict[str, float]:
  """Channel rates of an A100, as a share of an H100's; {} for other systems."""
  if system != "a100":
    return {}
  return {
    field: float(f"{value * _AMPERE_SHARE:.4g}")
    for field, value in start.items()
    if field.endswith("channel_gbps")
  }


def _fit_path(
  rows: Sequence[Row],
  of: tuple[str, str],
  start: Mapping[str, float],
  fixed: Mapping[str, float],
  apart: lone_collective.SetApart,
) -> tuple[wire.Path, lone_collective.SetApart]:
  if not start:
    return wire.Path(**fixed), apart
  _, name = of
  shown = _SHOWN.get(of)
  if shown:
    start = {**start, _APART: shown[2]}
  weights = np.array([
    next(w for least, w in _WEIGHTS if row.key.num_bytes >= least)
    for row in rows
  ])  # fmt: skip
  are_launches = [is_launches(row) for row in rows]
  least = np.array([0.0 if are else -math.inf for are in are_launches])
  prior_weights = np.array([
    _HELD_WEIGHT if (name, field) == _FEW_SHOW else _PRIOR_WEIGHT
    for field in start
  ])  # fmt: skip
  origin = np.log(np.array(list(start.values())))

  def values(
    x: np.ndarray, form: str = ""
  ) -> tuple[wire.Path, lone_collective.SetApart]:
    figures = [float(format(value, form)) for value in np.exp(x).tolist()]
    named = dict(zip(start, figures, strict=True))
    if not shown:
      return wire.Path(**named, **fixed), apart
    field, key, _ = shown
    changed: dict[str, Any] = {
      field: {**getattr(apart, field), key: named.pop(_APART)}
    }
    found = dataclasses.replace(apart, **changed)
    return wire.Path(**named, **fixed), found

  def residuals(x: np.ndarray) -> np.ndarray:
    path, apart = values(x)
    bare = dataclasses.replace(apart, launch_us=0.0, launch_channel_us=0.0)
    errors = [
      row.predict_us({name: path}, bare if are else apart) / row.time_us - 1
      for row, are in zip(rows, are_launches, strict=True)
    ]
    return np.concatenate(
      [weights * np.maximum(errors, least), prior_weights * (x - origin)]
    )

  found = optimize.least_squares(
    residuals, origin, loss="soft_l1", f_scale=_OUTLIER
  )
  return values(found.x, ".4g")


def _show(title: str, predicted: Sequence[tuple[Row, float]]) -> None:
  groups.show(
    title,
    groups.by_name(
      "",
      (
        (name, row.comparison(row.path, time_us))
        for row, time_us in predicted
        for name in _group_names(row)
      ),
    ),
  )


def _predicted(rows: Sequence[Row], fitted: Fit) -> list[tuple[Row, float]]:
  systems, apart = fitted
  return [(r, r.predict_us(systems[r.model_system], apart)) for r in rows]


def _group_names(row: Row) -> Sequence[str]:
  if isinstance(row, nccl_tests.Row):
    return (f"nccl-tests, {row.model_system}", f"nccl-tests, {row.system}")
  if not isinstance(row, lone_collective.Row):
    return ("A100 step, small all-reduces",)
  if not row.is_large:
    return (f"{row.device}, less than 64 KiB",)
  return (row.device, f"{row.device}, {row.key.kind}")


def _hold_out(
  table: Sequence[lone_collective.Row], others: Sequence[Row]
) -> None:
  """Prints the errors on the table's rows, by fits without each row's fold."""
  coins = np.random.default_rng(0).integers(2, size=len(table))
  divisions: dict[str, Sequence[int]] = {
    "random halves": coins.tolist(),
    "sizes (powers of two)": [r.key.num_bytes.bit_length() for r in table],
  }
  for title, folds in divisions.items():
    found: list[tuple[Row, float]] = []
    for fold in sorted(set(folds)):
      kept = [r for r, f in zip(table, folds, strict=True) if f != fold]
      out = [r for r, f in zip(table, folds, strict=True) if f == fold]
      found += _predicted(out, fit([*kept, *others]))
    _show(f"Held out: {title}", found)


def _write(fitted: Fit, rows: Sequence[Row]) -> None:
  systems, apart = fitted
  document = costs.read_fitted("collective")
  document["tests"] = sorted(
    {row.system for row in rows if isinstance(row, nccl_tests.Row)}
  )
  document["num_rows"] = {
    system: {
      name: sum((row.model_system, row.path) == (system, name) for row in rows)
      for name in paths
    }
    for system, paths in systems.items()
  }
  document["set_apart"] = dataclasses.asdict(apart)
  document["systems"] = {
    system: {
      name: {
        field.name: getattr(path, field.name)
        for field in dataclasses.fields(path)
        if getattr(path, field.name) != field.default
      }
      for name, path in paths.items()
    }
    for system, paths in systems.items()
  }
  data_lib.write_fitted("collective", document)


def compare(data: pathlib.Path) -> Iterator[groups.Group]:
  """Groups of rows on one node, each site predicted by a fit without it."""
  predicted = held_out(lone_collective.read_table(), other_rows(data))
  unfitted = [
    (row, row.predict_us())
    for row in nccl_tests.rows(data / "nccl_tests")
    if row.cluster.num_nodes == 1 and not row.shows_path
  ]
  yield from nccl_tests.by_what_fits_saw(
    "nccl-tests, held out",
    [*predicted, *unfitted],
    lone_collective.seen_systems(),
  )


def held_out(
  table: Sequence[lone_collective.Row], others: Sequence[Row]
) -> list[tuple[nccl_tests.Row, float]]:
  """Rows of nccl-tests, with times from fits that did not see their site."""
  seen = lone_collective.seen_systems()
  tests = [row for row in others if isinstance(row, nccl_tests.Row)]
  predicted = [(r, r.predict_us()) for r in tests if r.system not in seen]
  tests = [row for row in tests if row.system in seen]
  if not tests:
    return predicted
  traced = [row for row in others if not isinstance(row, nccl_tests.Row)]
  systems, _ = fit([*table, *tests, *traced])
  for site, name in sorted({(row.site, row.model_system) for row in tests}):
    kept = [row for row in tests if row.site != site]
    rows = [*table, *kept, *traced]
    paths, apart = fit_system(name, rows, systems, _apart(rows))
    predicted += [
      (row, row.predict_us(paths, apart))
      for row in tests
      if (row.site, row.model_system) == (site, name)
    ]
  return predicted


def main() -> None:
  """Fits, prints the errors, and writes the parameters if asked to."""
  arguments = data_lib.arguments(__doc__, "write", "hold_out")
  table = lone_collective.read_table()
  seen = lone_collective.seen_systems()
  others = [
    row
    for row in other_rows(arguments.data)
    if not isinstance(row, nccl_tests.Row) or row.system in seen
  ]
  rows = [*table, *others]
  fitted = fit(rows)
  if arguments.write:
    _write(fitted, rows)
  print(fitted[1])
  _show("All rows, fitted to all of them", _predicted(rows, fitted))
  if arguments.hold_out:
    _hold_out(table, others)


if __name__ == "__main__":
  main()
