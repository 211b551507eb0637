# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The fit of costs/wire/'s parameters to measured lone collectives.

Parameters are fitted by relative least squares with a weak prior, path by path
(see wire.Path), on the rows of collective_rows.py.

  python -m benchmarks.fit_collectives [--write] [--hold_out]

--write writes lagom_xla/costs/fitted/collective.json; --hold_out prints the
errors on rows that a fit did not see.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
import dataclasses
import json
import pathlib

import numpy as np
from scipy import optimize

from benchmarks import collective_rows
from lagom_xla.costs import wire

_OUTPUT = (
  pathlib.Path(__file__).resolve().parent.parent
  / "lagom_xla/costs/fitted/collective.json"
)

# Weights of a row's relative error by its least bytes: repeats of short times
# scatter by a quarter, of long ones by a few per cent.
_WEIGHTS = ((2**22, 3.0), (collective_rows.LARGE_BYTES, 1.0), (0, 0.3))
# Relative errors beyond this count linearly.
_OUTLIER = 0.5
# How much a parameter's logarithm is held to its start; noisy rows need it.
_PRIOR_WEIGHT = 0.2

# Start values. The last systems start from the first one's result, so a path
# that a system's rows do not show is like the first one's.
_SYSTEMS = ("gb200", "b200", "h100")
_START: Mapping[str, Mapping[str, float]] = {
  "ring.ll": {
    "start_us": 10,
    "hop_us": 1.4,
    "channel_gbps": 8,
    "reducing_channel_gbps": 6,
    "first_bytes": 4096,
  },
  "ring.ll128": {"start_us": 14, "hop_us": 1.2, "link_efficiency": 0.88},
  "ring.simple": {
    "start_us": 28,
    "hop_us": 0.5,
    "link_efficiency": 0.96,
    "own_gather_steps": 0.3,
    "own_reduce_steps": 0.7,
  },
  "nvls.simple": {
    "start_us": 25,
    "hop_us": 6,
    "link_efficiency": 0.75,
    "handshake_us": 1.5,
  },
  "nvls_gather.simple": {
    "start_us": 25,
    "hop_us": 3,
    "link_efficiency": 0.75,
    "handshake_us": 1.5,
  },
  "permute.ll": {"start_us": 10, "channel_gbps": 5},
  "permute.simple": {
    "start_us": 13,
    "channel_gbps": 22,
    "link_efficiency": 0.9,
  },
  "exchange.ll": {
    "start_us": 12,
    "hop_us": 1.1,
    "channel_gbps": 5,
    "shadowed_peers": 24,
  },
  "exchange.simple": {
    "start_us": 20,
    "hop_us": 0.6,
    "channel_gbps": 22,
    "link_efficiency": 0.9,
    "own_gather_steps": 0.1,
  },
  "exchange_in_host.ll": {"start_us": 24, "channel_gbps": 8},
  "exchange_in_host.simple": {
    "start_us": 24,
    "channel_gbps": 22,
    "link_efficiency": 0.9,
    "own_gather_steps": 0.1,
  },
}
# Not seen in the rows, where all channels together fill the links. NCCL's own
# caps (perChMaxRingLL128Bws, src/graph/tuning.cc), and for Simple and NVLS what
# one-way permutes of four channels reach, a quarter: 116 and 130 GB/s. Simple
# chunks of a ring are too large to show their handshake, which is a hop's.
_FIXED: Mapping[str, Mapping[str, Mapping[str, float]]] = {
  system: {
    "ring.ll128": {
      "channel_gbps": ll128_gbps,
      "reducing_channel_gbps": ll128_gbps,
    },
    "ring.simple": {
      "channel_gbps": gbps,
      "reducing_channel_gbps": gbps,
      "handshake_us": 1.5,
    },
    "nvls.simple": {"channel_gbps": gbps},
    "nvls_gather.simple": {"channel_gbps": gbps},
    "permute.simple": {"handshake_us": 1.5},
    "exchange.simple": {"handshake_us": 1.5},
    "exchange_in_host.simple": {"handshake_us": 1.5},
  }
  for system, ll128_gbps, gbps in (
    ("gb200", 40.0, 32.5),
    ("b200", 40.0, 32.5),
    ("h100", 36.7, 29.0),
  )
}


def fit(rows: Sequence[collective_rows.Row]) -> dict[str, dict[str, wire.Path]]:
  """Paths by system and name."""
  start = {name: dict(values) for name, values in _START.items()}
  systems = {}
  for system in _SYSTEMS:
    systems[system] = {}
    for name in _START:
      fixed = _FIXED[system].get(name, {})
      seen = [row for row in rows if (row.system, row.path) == (system, name)]
      values = _fit_path(seen, name, start[name], fixed)
      systems[system][name] = wire.Path(**values, **fixed)
      if system == _SYSTEMS[0]:
        start[name] = values
  return systems


def _fit_path(
  rows: Sequence[collective_rows.Row],
  name: str,
  start: Mapping[str, float],
  fixed: Mapping[str, float],
) -> dict[str, float]:
  weights = np.array([_weight(row) for row in rows])
  origin = np.log(np.array(list(start.values())))

  def values(x: np.ndarray) -> dict[str, float]:
    return dict(zip(start, np.exp(x).tolist(), strict=True))

  def residuals(x: np.ndarray) -> np.ndarray:
    paths = {name: wire.Path(**values(x), **fixed)}
    errors = [row.predict_us(paths) / row.time_us - 1 for row in rows]
    return np.concatenate(
      [weights * np.array(errors), _PRIOR_WEIGHT * (x - origin)]
    )

  found = optimize.least_squares(
    residuals, origin, loss="soft_l1", f_scale=_OUTLIER
  )
  return {key: float(f"{v:.4g}") for key, v in values(found.x).items()}


def _weight(row: collective_rows.Row) -> float:
  return next(w for least, w in _WEIGHTS if row.num_bytes >= least)


def relative_errors(
  rows: Iterable[collective_rows.Row],
  systems: Mapping[str, wire.Paths] | None = None,
) -> list[float]:
  """|predicted / measured - 1| of each row."""
  return [
    abs(
      row.predict_us(systems[row.system] if systems else None) / row.time_us - 1
    )
    for row in rows
  ]


def _print_errors(
  rows: Sequence[collective_rows.Row], errors: Sequence[float]
) -> None:
  def show(name: str, keep: Callable[[collective_rows.Row], bool]) -> None:
    of = [e for row, e in zip(rows, errors, strict=True) if keep(row)]
    if of:
      median, p90 = np.percentile(of, (50, 90))
      print(
        f"  {name:34} n {len(of):4}  median {median:6.1%}  p90 {p90:6.1%}"
        f"  worst {max(of):7.1%}"
      )

  for device in collective_rows.CLUSTERS:
    show(device, lambda row, d=device: row.device == d and row.is_large)
    for kind in sorted({row.kind for row in rows}):
      show(
        f"  {kind}",
        lambda row, d=device, k=kind: (
          row.device == d and row.is_large and row.kind == k
        ),
      )
    show(
      "  less than 64 KiB",
      lambda row, d=device: row.device == d and not row.is_large,
    )


def _hold_out(rows: Sequence[collective_rows.Row]) -> None:
  """Errors of each row, by fits without it and its like."""
  rng = np.random.default_rng(0)
  coins = rng.integers(2, size=len(rows))
  divisions: dict[str, Sequence[Hashable]] = {
    "random halves": coins.tolist(),
    "sizes (powers of two)": [r.num_bytes.bit_length() for r in rows],
    "group sizes": [row.num_ranks for row in rows],
  }
  for title, folds in divisions.items():
    errors = [0.0] * len(rows)
    for fold in sorted(set(folds), key=repr):
      systems = fit([r for r, f in zip(rows, folds, strict=True) if f != fold])
      out = [i for i, f in enumerate(folds) if f == fold]
      found = relative_errors([rows[i] for i in out], systems)
      for i, error in zip(out, found, strict=True):
        errors[i] = error
    print(f"Held out: {title}")
    _print_errors(rows, errors)


def _write(
  systems: Mapping[str, wire.Paths], rows: Sequence[collective_rows.Row]
) -> None:
  named = {
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
  counts = {
    system: {
      name: sum((row.system, row.path) == (system, name) for row in rows)
      for name in paths
    }
    for system, paths in systems.items()
  }
  text = json.dumps(
    {
      "about": (
        "Parameters of costs/wire/ by system and path (algorithm.protocol)."
        " Names are the fields of wire.Path; _us are microseconds, _gbps 1e9"
        " bytes per second, _steps fractions of a ring's step,"
        " link_efficiency a share of the links' rate in NCCL's model."
      ),
      "fitted_by": "benchmarks/fit_collectives.py",
      "fitted_to": (
        "Half of the rows of XLA's default_collective_perf_table: sm_90 for"
        " h100, B200 for b200, GB200 and sm_103 for gb200."
      ),
      "fitted_how": (
        "Least squares of relative errors, soft above 50 %, rows of 4 MiB"
        " and more weighted by 3 and of less than 64 KiB by 0.3, parameters"
        " held weakly to start values. Paths without rows are as gb200's."
        " channel_gbps of ring.ll128 is NCCL's cap of a channel; of ring.simple"
        " and nvls what one-way permutes show for a channel; handshake_us of"
        " Simple outside NVLS is what NVLS shows."
      ),
      "num_rows": counts,
      "systems": named,
    },
    indent=2,
  )
  _OUTPUT.write_text(text + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--write", action="store_true")
  parser.add_argument("--hold_out", action="store_true")
  return parser.parse_args()


def main() -> None:
  """Fits, prints the errors, and writes the parameters if asked to."""
  arguments = _arguments()
  rows = collective_rows.read()
  systems = fit(rows)
  if arguments.write:
    _write(systems, rows)
  print("All rows, fitted to all of them")
  _print_errors(rows, relative_errors(rows, systems))
  print("The same, with NCCL 2.32's rule for sends and receives")
  newer = collective_rows.read(old_rule=False)
  _print_errors(newer, relative_errors(newer, systems))
  if arguments.hold_out:
    _hold_out(rows)


if __name__ == "__main__":
  main()
