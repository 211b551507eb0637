# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The best that a search to the end finds in an overlap.

All that a replay knows of a setting is the time it takes alone, the SMs and the
memory bandwidth. Of one key all settings that differ in these are replayed. Of
two keys, pairs are; there, settings are left out that another setting of the
same key beats in all three, and pairs whose lone times alone come to more than
the best so far.
"""

from __future__ import annotations

from collections.abc import Sequence
import itertools

from benchmarks.search import overlap_cases
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.search.nccl import problem as problem_lib

# A setting with what the collective costs alone under it.
_Costed = tuple[nccl.Setting, collective_lib.CollectiveCost]


def best_us(case: overlap_cases.Case) -> float:
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
