# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Searches against the best of all settings, on single overlaps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses

import numpy as np

from benchmarks import table as table_lib
from benchmarks.search import contestants
from benchmarks.search import modules as modules_lib
from benchmarks.search import overlap_cases
from benchmarks.search import reference
from lagom_xla.search.nccl import problem
from lagom_xla.search.nccl import searcher as searcher_lib

NAME = "against_exhaustive"

_NEAR = 0.01
_SHARE = 0.95
_MOST_TRIALS = 50

_COLUMNS = (
  table_lib.Column(field="searcher", heading="searcher"),
  table_lib.Column(field="overlaps", heading="overlaps with"),
  table_lib.Column(field="num_overlaps", heading="n"),
  table_lib.Column(field="num_modules", heading="modules"),
  table_lib.Column(field="median", heading="median", form=".2%"),
  table_lib.Column(field="p90", heading="p90", form=".2%"),
  table_lib.Column(field="p95", heading="p95", form=".2%"),
  table_lib.Column(field="worst", heading="worst", form=".1%"),
  table_lib.Column(field="share_near", heading="within 1 %", form=".1%"),
  table_lib.Column(field="default_near", heading="NCCL's own", form=".1%"),
  table_lib.Column(field="median_trials", heading="trials", form=".0f"),
  table_lib.Column(field="most_trials", heading="at most", form=".0f"),
  table_lib.Column(field="worst_module", heading="worst in"),
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
  """What one search of an overlap came to.

  Attributes:
    case: the overlap.
    excess: its time over the best there is, less one.
    default_excess: the same of NCCL's own choices.
    trials_per_key: evaluations per tuning key.
  """

  case: overlap_cases.Case
  excess: float
  default_excess: float
  trials_per_key: float


def table(
  shelf: modules_lib.Shelf,
  modules: Iterable[modules_lib.Module],
  searchers: Mapping[str, searcher_lib.Searcher],
) -> table_lib.Table:
  """Searches every overlap of these modules with one or two keys."""
  found: dict[str, list[Outcome]] = {name: [] for name in searchers}
  seen: set[object] = set()
  for module in shelf.available(modules):
    cases = list(overlap_cases.of_step(module.name, shelf.step(module), seen))
    modules_lib.say(f"{module.name}: {len(cases)} overlaps")
    for case in cases:
      best_us = reference.best_us(case)
      for name, searcher in searchers.items():
        found[name].append(outcome(case, searcher, best_us))
  rows = [
    row for name, outcomes in found.items() for row in _rows(name, outcomes)
  ]
  return table_lib.Table(
    name=NAME,
    title="Searches against the best of every setting, on single overlaps",
    columns=_COLUMNS,
    rows=rows,
    targets=[_target(name, found[name]) for name in contestants.OURS
             if found.get(name)],
    notes=(
      "Different overlaps of the modules with one or two keys to tune, each"
      " tuned alone from NCCL's own choices on.",
      "Figures are the overlap's time over the best of all settings, less one;"
      " trials are per tuning key.",
      "NCCL's own: the share of overlaps in which its choices are within 1 %.",
    ),
  )  # fmt: skip


def outcome(
  case: overlap_cases.Case, searcher: searcher_lib.Searcher, best_us: float
) -> Outcome:
  """Searches one overlap."""
  profile = problem.Predictor(case.step, case.problem)
  default = {key: case.step.default[key] for key in case.problem.keys}
  state = searcher_lib.run(
    searcher,
    case.problem,
    case.step.cluster,
    start=default,
    profile=profile,
  )
  return Outcome(
    case=case,
    excess=state.best_us / best_us - 1,
    default_excess=profile(default).total_us / best_us - 1,
    trials_per_key=state.num_trials / len(case.problem.keys),
  )


def _rows(name: str, outcomes: Sequence[Outcome]) -> Iterator[table_lib.Row]:
  groups: dict[str, list[Outcome]] = {}
  for one in outcomes:
    groups.setdefault(_group(one.case), []).append(one)
  for group in sorted(groups):
    yield _row(name, group, groups[group])
  if len(groups) > 1:
    yield _row(name, "all", outcomes)


def _group(case: overlap_cases.Case) -> str:
  match case.num_collectives:
    case 1:
      return "1 collective"
    case 2:
      return "2 collectives"
  return "more, 1 or 2 keys"


def _row(name: str, group: str, outcomes: Sequence[Outcome]) -> table_lib.Row:
  excess = np.array([o.excess for o in outcomes])
  trials = np.array([o.trials_per_key for o in outcomes])
  return {
    "searcher": name,
    "overlaps": group,
    "num_overlaps": len(outcomes),
    "num_modules": len({o.case.module for o in outcomes}),
    "median": float(np.median(excess)),
    "p90": float(np.quantile(excess, 0.9)),
    "p95": float(np.quantile(excess, 0.95)),
    "worst": float(excess.max()),
    "share_near": float(np.mean(excess <= _NEAR)),
    "default_near": float(
      np.mean([o.default_excess <= _NEAR for o in outcomes])
    ),
    "below_reference": int(np.sum(excess < -1e-9)),
    "median_trials": float(np.median(trials)),
    "most_trials": float(trials.max()),
    "worst_module": outcomes[int(excess.argmax())].case.module,
  }


def _target(name: str, outcomes: Sequence[Outcome]) -> table_lib.Target:
  share = float(np.mean([o.excess <= _NEAR for o in outcomes]))
  most = max(o.trials_per_key for o in outcomes)
  return table_lib.Target(
    wanted=(
      f"{name} within {_NEAR:.0%} of the best on {_SHARE:.0%} of the overlaps,"
      f" at {_MOST_TRIALS} evaluations per collective or fewer"
    ),
    found=f"{share:.1%} of {len(outcomes)}, at {most:.0f} at most",
    is_met=share >= _SHARE and most <= _MOST_TRIALS,
  )
