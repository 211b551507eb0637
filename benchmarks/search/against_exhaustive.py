# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Searches against the best of all settings, on single overlaps.

An overlap of a real module with one or two tuning keys is small enough to be
searched to the end. Overlaps with equal kernels and keys are one case. All that
a replay knows of a setting is the time it takes alone, the SMs and the memory
bandwidth. Of one key all settings that differ in these are replayed. Of two
keys, pairs are; there, settings are left out that another setting of the same
key beats in all three, and pairs whose lone times alone come to more than the
best so far.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
import copy
import dataclasses
import itertools

import numpy as np

from benchmarks import table as table_lib
from benchmarks.search import equal_budget
from benchmarks.search import modules as modules_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib

_MOST_KEYS = 2


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Case:
  """One overlap, tuned alone.

  Attributes:
    module: name of the module that it is from.
    step: the step, in which only this overlap's collectives count.
    problem: the overlap.
    num_collectives: that it runs, those of loops inside it once.
  """

  module: str
  step: step_lib.Step
  problem: problem_lib.Problem
  num_collectives: int


def of_step(
  module: str, step: step_lib.Step, seen: set[object]
) -> Iterator[Case]:
  """The different overlaps of a step that have one or two keys to tune.

  Args:
    module: its name.
    step: where to look.
    seen: overlaps that are not wanted again; those that are found join them.
  """
  for overlap in step.analysis.overlaps:
    program = program_lib.of_overlap(step.analysis, overlap)
    runs: collections.Counter[problem_lib.Key] = collections.Counter()
    names = set()
    for collective, repeats in program_lib.collectives_in(program):
      runs[step.key_of[collective.name]] += repeats
      names.add(collective.name)
    is_tunable = any(key.kind not in nccl.SEND_RECV for key in runs)
    kernels = tuple(step.kernel_cost(kernel) for kernel in overlap.kernels)
    keys = tuple(step.key_of[c.name] for c in overlap.collectives)
    alike = (step.cluster.name, kernels, keys)
    if not is_tunable or len(runs) > _MOST_KEYS or alike in seen:
      continue
    seen.add(alike)
    yield Case(
      module=module,
      step=_excerpt(step, runs),
      problem=problem_lib.Problem(
        keys=tuple(sorted(runs)),
        programs=((program, 1),),
        program_keys=(frozenset(runs),),
      ),
      num_collectives=len(names),
    )


def _excerpt(
  step: step_lib.Step, runs: collections.Counter[problem_lib.Key]
) -> step_lib.Step:
  """The step with the same costs, of which only some collectives run."""
  excerpt = copy.copy(step)
  vars(excerpt)["executions"] = dict(runs)  # In place of the cached property.
  return excerpt


# A setting with what the collective costs alone under it.
_Costed = tuple[nccl.Setting, collective_lib.CollectiveCost]


def shortest_us(case: Case) -> float:
  """The shortest time of an overlap under any setting on the grid."""
  ((program, _),) = case.problem.programs
  keys = case.problem.keys
  choices = [_choices(case.step, key) for key in keys]
  if len(keys) > 1:
    choices = [_undominated(c) for c in choices]
  runs = [case.step.executions[key] for key in keys]

  def alone_us(chosen: Sequence[_Costed]) -> float:
    return sum(
      times * cost.time_us
      for times, (_, cost) in zip(runs, chosen, strict=True)
    )

  best = timeline.replay(
    program, case.step.costs(case.step.default)
  ).step_time_us
  for chosen in sorted(itertools.product(*choices), key=alone_us):
    if alone_us(chosen) >= best:
      break
    configuration = {
      key: setting for key, (setting, _) in zip(keys, chosen, strict=True)
    }
    replayed = timeline.replay(program, case.step.costs(configuration))
    best = min(best, replayed.step_time_us)
  return best


def _choices(step: step_lib.Step, key: problem_lib.Key) -> list[_Costed]:
  """The settings of a key that a replay can tell apart."""
  by_cost: dict[collective_lib.CollectiveCost, nccl.Setting] = {}
  for subspace in problem_lib.subspaces(key, step.cluster):
    for setting in subspace.settings:
      by_cost.setdefault(step.predict(key, setting), setting)
  return [(setting, cost) for cost, setting in by_cost.items()]


def _undominated(choices: Sequence[_Costed]) -> list[_Costed]:
  kept: list[_Costed] = []
  for setting, cost in sorted(choices, key=lambda c: _demands(c[1])):
    demands = _demands(cost)
    if not any(
      all(a <= b for a, b in zip(_demands(other), demands, strict=True))
      for _, other in kept
    ):
      kept.append((setting, cost))
  return kept


def _demands(
  cost: collective_lib.CollectiveCost,
) -> tuple[float, int, float]:
  return cost.time_us, cost.num_channels, cost.memory_gbps


NAME = "against_exhaustive"

_NEAR = 0.01
_SHARE = 0.95
_MOST_TRIALS = 50

_COLUMNS = (
  table_lib.Column("searcher"),
  table_lib.Column("overlaps"),
  table_lib.Column("num_overlaps"),
  table_lib.Column("num_modules"),
  table_lib.Column("median", ".2%"),
  table_lib.Column("p90", ".2%"),
  table_lib.Column("p95", ".2%"),
  table_lib.Column("worst", ".1%"),
  table_lib.Column("share_near", ".1%"),
  table_lib.Column("default_near", ".1%"),
  table_lib.Column("median_trials", ".0f"),
  table_lib.Column("most_trials", ".0f"),
  table_lib.Column("worst_module"),
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

  case: Case
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
    cases = list(of_step(module.name, shelf.step(module), seen))
    modules_lib.say(f"{module.name}: {len(cases)} overlaps")
    for case in cases:
      best_us = shortest_us(case)
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
    targets=[_target(name, found[name]) for name in equal_budget.OURS
             if found.get(name)],
    notes=(
      "Different overlaps of the modules with one or two keys to tune, each"
      " tuned alone from NCCL's own choices on.",
      "Figures are the overlap's time over the best of all settings, less one;"
      " trials are per tuning key.",
      "default_near: the share of overlaps in which NCCL's own choices are"
      " within 1 %.",
    ),
  )  # fmt: skip


def outcome(
  case: Case, searcher: searcher_lib.Searcher, best_us: float
) -> Outcome:
  """Searches one overlap."""
  profile = problem_lib.Predictor(case.step, case.problem)
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


def _group(case: Case) -> str:
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
