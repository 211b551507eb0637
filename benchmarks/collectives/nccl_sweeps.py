# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a setting changes: measured ratios of times, beside the model's.

A search lives off differences between settings, not off times. `--data` holds
nccl_tests/sweeps.csv, where one knob is varied and all else is fixed
(sweep_runs.py). Of each series the first value is compared with every other:
the time under that one over the time under the first.

Two groups come of each knob, of the ratios' errors and of their signs: whether
what is predicted to be faster is faster, counted where the measured times are
at least 5 % apart. Three more say how well settings are known that NCCL does
not choose, whatever the knob: how long one channel takes; and how much longer
another algorithm or protocol takes than NCCL's own, where ranks' parts are
short and where they are long (`costs/other_settings.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import pathlib

from benchmarks import groups
from benchmarks.collectives import sweep_runs
from lagom_xla.costs import other_settings

_LEAST_DIFFERENCE = 0.05


def compare(folder: pathlib.Path) -> Iterator[groups.Group]:
  """Groups of sweeps.csv in the folder: by knob, and of unchosen settings."""
  path = folder / "sweeps.csv"
  if not path.exists():
    return
  found: dict[str, list[groups.Comparison]] = {}
  unchosen: dict[str, list[groups.Comparison]] = {}
  for runs in sweep_runs.series(path):
    first = runs[0]
    found.setdefault(first.knob, []).extend(
      _ratio(run, first) for run in runs[1:] if run.value != first.value
    )
    for name, comparison in _unchosen(runs):
      unchosen.setdefault(f"sweeps: {name}", []).append(comparison)
  for knob in sorted(filter(found.get, found)):
    yield groups.of_comparisons(f"sweeps, ratios: {knob}", found[knob])
    yield from _signs(knob, found[knob])
  for name in sorted(unchosen):
    yield groups.of_comparisons(name, unchosen[name])


def _ratio(run: sweep_runs.Run, base: sweep_runs.Run) -> groups.Comparison:
  return groups.Comparison(
    what=f"{run.what}, {run.knob} {run.value} over {base.value}",
    measured=run.measured_us / base.measured_us,
    predicted=run.predicted_us / base.predicted_us,
  )


def _unchosen(
  runs: Sequence[sweep_runs.Run],
) -> Iterator[tuple[str, groups.Comparison]]:
  """Settings that NCCL does not choose, by what is known of them.

  One channel is compared by its time; another algorithm or protocol by how much
  longer it takes than NCCL's own, of which the last of several runs counts.
  """
  own = [run for run in runs if run.setting == run.case.default]
  for run in runs:
    default = run.case.default
    if run.setting == default:
      continue
    if run.value == "1 channel":
      compared = groups.Comparison(
        what=f"{run.what}, {run.value}, us",
        measured=run.measured_us,
        predicted=run.predicted_us,
      )
      yield "one channel", compared
    elif own:
      is_long = other_settings.has_long_parts(run.case.key)
      length = "long" if is_long else "short"
      yield f"another algorithm, {length} parts", _ratio(run, own[-1])


def _signs(
  knob: str, comparisons: Sequence[groups.Comparison]
) -> Iterator[groups.Group]:
  apart = [c for c in comparisons if abs(c.measured - 1) >= _LEAST_DIFFERENCE]
  wrong = [
    f"{c.what}: measured {c.measured:.3g}, predicted {c.predicted:.3g}"
    for c in apart
    if (c.measured - 1) * (c.predicted - 1) <= 0
  ]
  if apart:
    yield groups.of_matches(f"sweeps, signs: {knob}", wrong, len(apart))
