# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A workload under NCCL's default and under each searcher's plan.

All searchers start from NCCL's own choices and see the same predictions.
AutoCCL's plan is what AutoCCL keeps: for each tuning key the setting with which
its collectives are fastest, whatever that does to the kernels. The channel cap
stands beside them, because it is the one plan that reaches sends and receives,
which no tuner of NCCL's does.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses

from benchmarks.paper import cases
from benchmarks.paper import reported
from benchmarks.searchers import autoccl
from lagom_xla.costs import lower_bound
from lagom_xla.costs import step as step_lib
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.nccl import lagom
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib
from lagom_xla.search.nccl.balance import Balance

Key = step_lib.Key
Configuration = step_lib.Configuration

SEARCHERS: Mapping[str, searcher_lib.Searcher] = {
  "AutoCCL": autoccl.AutoCCL(),
  "Lagom": lagom.Lagom(),
  "balance": Balance(),
}

# The paper's own default is known for these.
_KNOWN_DEFAULTS = ("all-gather", "reduce-scatter", "all-reduce")

# Keys that a row names: those with this share of all communication.
_LEAST_SHARE = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
  """What a searcher found for a step.

  Attributes:
    step_time_us: predicted.
    num_trials: profiled configurations, summed over the step's problems.
    configuration: a setting for each key.
  """

  step_time_us: float
  num_trials: int
  configuration: Configuration


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Row:
  """A workload with its plans.

  Attributes:
    case: the workload.
    default_us: step time under NCCL's choices as the cost model has them.
    default: those choices.
    paper_default_us: step time under NCCL's choices as the paper has them.
    plans: by searcher.
    cap_us: step time under the best channel cap.
    bound_us: no tuning can beat it (costs/lower_bound.py).
    kernel_us: kernels alone, by default.
    collective_us: collectives alone, by default.
    fastest_us: collectives alone, under AutoCCL's plan.
    exposed_us: waits for collectives, by default.
    slowdown_us: what kernels lose to collectives, by default.
    copies_us: waits for copies, and what kernels lose to them, by default.
    times_us: lone time of each key's collectives per step, by default.
  """

  case: cases.Case
  default_us: float
  default: Configuration
  paper_default_us: float
  plans: Mapping[str, Plan]
  cap_us: float
  bound_us: float
  kernel_us: float
  collective_us: float
  fastest_us: float
  exposed_us: float
  slowdown_us: float
  copies_us: float
  times_us: Mapping[Key, float]

  def speedup(self, step_time_us: float) -> float:
    """Over the default."""
    return self.default_us / step_time_us

  @property
  def main_keys(self) -> tuple[Key, ...]:
    """The keys that take most of the communication, the first most."""
    least_us = _LEAST_SHARE * self.collective_us
    keys = [key for key, us in self.times_us.items() if us >= least_us]
    return tuple(sorted(keys, key=lambda key: -self.times_us[key]))


def compare(case: cases.Case, step: step_lib.Step) -> Row:
  """Searches a workload; `step` is its own."""
  replayed = step.timeline(step.default)
  plans = {name: search(name, step) for name in SEARCHERS}
  return Row(
    case=case,
    default_us=replayed.step_time_us,
    default=step.default,
    paper_default_us=step.timeline(_paper_default(step, case)).step_time_us,
    plans=plans,
    cap_us=channel_cap.best(step).step_time_us,
    bound_us=lower_bound.us(step),
    kernel_us=replayed.kernel_us,
    collective_us=replayed.collective_us,
    fastest_us=sum(_alone_us(step, plans["AutoCCL"].configuration).values()),
    exposed_us=sum(replayed.exposed_us.values()),
    slowdown_us=replayed.total_slowdown_us,
    copies_us=replayed.total_copy_wait_us + replayed.total_copy_slowdown_us,
    times_us=_alone_us(step, step.default),
  )


def _alone_us(
  step: step_lib.Step, configuration: Configuration
) -> dict[Key, float]:
  return {
    key: step.executions[key] * step.predict(key, setting).time_us
    for key, setting in configuration.items()
  }


def search(name: str, step: step_lib.Step) -> Plan:
  """One searcher's plan for a step, from NCCL's defaults."""
  configuration = dict(step.default)
  num_trials = 0
  for problem in problem_lib.problems(step):
    found, trials = search_problem(name, step, problem)
    configuration.update(found)
    num_trials += trials
  return Plan(
    step_time_us=step.timeline(configuration).step_time_us,
    num_trials=num_trials,
    configuration=configuration,
  )


def search_problem(
  name: str, step: step_lib.Step, problem: problem_lib.Problem
) -> tuple[Configuration, int]:
  """What a searcher keeps for a problem, and the trials that it took."""
  searcher = SEARCHERS[name]
  state = searcher_lib.run(
    searcher,
    problem,
    step.cluster,
    start=step.default,
    profile=problem_lib.Predictor(step, problem),
  )
  if isinstance(searcher, autoccl.AutoCCL):
    return searcher.fastest(state), state.num_trials
  return searcher.best(state), state.num_trials


def _paper_default(step: step_lib.Step, case: cases.Case) -> Configuration:
  setting = reported.DEFAULT[case.cluster]
  return {
    key: setting if key.kind in _KNOWN_DEFAULTS else default
    for key, default in step.default.items()
  }
