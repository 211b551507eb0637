# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Held-out errors of the contention model corrected by measured slowdowns.

    python -m benchmarks.steps.corrected --data FOLDER

A profile shows the slowdowns of kernels beside collectives. How well do these
generalize? Each row corrects the model with the slowdowns of one half of a
traced step (FOLDER is that of `python -m benchmarks.accuracy`), and judges it
on the other half:

- *another rank*: the same pairs of work and collective, on the other GPU;
- *other collectives*: every second collective, from the same kernels' slowdowns
  beside the others of its kind;
- *other kernels*: half of the works, by category and kind of collective.

Prints the error of the total loss of all kernels, and the mean error of pairs
(ln of measured over predicted slowdown), for the model and the corrected model.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Sequence
import math
import statistics
import zlib

from benchmarks import table as table_lib
from benchmarks.steps import slowdowns
from benchmarks.steps import traced_step
from lagom_xla.profiling import costing

_Meetings = Sequence[slowdowns.Meeting]
_Key = Callable[[slowdowns.Meeting], object]


def rows(trace: traced_step.TracedStep) -> Iterator[table_lib.Row]:
  """Rows of a step, with one half held out from the other.

  `known` is the share of meetings for which the other half has a factor.
  `lost_us` is the total loss of the kernels. Errors of the model and the
  corrected model are relative to it; those of pairs are means.
  """
  found = slowdowns.meetings(trace)
  names = sorted({m.run.collective for m in found})
  splits: tuple[tuple[str, Callable[[slowdowns.Meeting], int], _Key], ...] = (
    (
      "another rank",
      lambda m: m.rank,
      lambda m: (m.class_, m.run.collective),
    ),
    (
      "other collectives",
      lambda m: names.index(m.run.collective) % 2,
      lambda m: (m.class_, m.kind),
    ),
    (
      "other kernels",
      lambda m: zlib.crc32(m.class_.encode()) % 2,
      lambda m: (m.category, m.kind),
    ),
  )
  for held_out, half_of, key in splits:
    halves = [[m for m in found if half_of(m) == half] for half in range(2)]
    for half, met in enumerate(halves):
      errors = _errors(met, halves[1 - half], key)
      yield {"held_out": held_out, "half": half, **errors}


def _errors(met: _Meetings, others: _Meetings, key: _Key) -> dict[str, float]:
  alike = collections.defaultdict(list)
  for m in others:
    alike[key(m)].append(
      costing.Met(
        time_us=m.run.time_us, lone_us=m.lone_us, predicted_us=m.predicted_us
      )
    )
  factors = {name: costing.slowdown_factor(of) for name, of in alike.items()}
  lost_us = sum(m.run.time_us - m.lone_us for m in met)
  model_us = [m.predicted_us - m.lone_us for m in met]
  by = [factors.get(key(m), 1.0) for m in met]
  corrected_us = [us * factor for us, factor in zip(model_us, by, strict=True)]
  return {
    "known": sum(key(m) in factors for m in met) / len(met),
    "lost_us": lost_us,
    "model": sum(model_us) / lost_us - 1,
    "corrected": sum(corrected_us) / lost_us - 1,
    "pairs_model": _pairs_error(met, lambda _: 1.0),
    "pairs_corrected": _pairs_error(met, lambda m: factors.get(key(m), 1.0)),
  }


def _pairs_error(
  met: _Meetings, factor: Callable[[slowdowns.Meeting], float]
) -> float:
  errors = []
  for alike in slowdowns.pairs(met):
    first = alike[0]
    measured = statistics.median(m.run.time_us for m in alike) / first.lone_us
    foretold = 1 + factor(first) * (first.slowdown - 1)
    errors.append(abs(math.log(measured / foretold)))
  return statistics.fmean(errors)


if __name__ == "__main__":
  traced_step.show(
    "benchmarks.steps.corrected",
    __doc__,
    rows,
    held_out="",
    half="",
    known=".0%",
    lost_us=".0f",
    model="+.1%",
    corrected="+.1%",
    pairs_model=".3f",
    pairs_corrected=".3f",
  )
