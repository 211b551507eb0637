# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Races: all searchers search one module, each with the same budget.

Lagom's and AutoCCL's searches see what each collective did; they search the
parts of a step that do not touch each other (its problems) side by side. Random
search and TPE know nothing of collectives: they see one figure, the time of the
step. As that is most of why they lose, they are also run part by part, with all
that our searchers see except the times of single collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import dataclasses

from benchmarks.search import contestants
from benchmarks.search import modules as modules_lib
from benchmarks.searchers import lockstep
from lagom_xla.costs import step as step_lib
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib

_BY_PART = " by part"
# All but ours.
RIVALS = (
  *contestants.OTHERS,
  *(name + _BY_PART for name in contestants.BLIND),
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Races:
  """All searches of one module.

  Attributes:
    module: its name.
    num_keys: tuning keys.
    largest: keys of its largest problem.
    default_us: the step time under NCCL's own choices.
    histories: by searcher, one per seed.
  """

  module: str
  num_keys: int
  largest: int
  default_us: float
  histories: Mapping[str, Sequence[lockstep.History]]

  @property
  def best_us(self) -> float:
    """The best step time that any search found at its end."""
    return min(
      history.best_us[-1]
      for histories in self.histories.values()
      for history in histories
    )

  def excess(self, name: str, budget: int) -> list[float]:
    """Of each seed: the best after a budget over the best of all, less one."""
    return [
      history.best_us_after(budget) / self.best_us - 1
      for history in self.histories[name]
    ]


def race(
  module: str, step: step_lib.Step, *, max_trials: int, num_seeds: int
) -> Races:
  """Lets all searchers search a module."""
  problems = problem_lib.problems(step)
  histories: dict[str, list[lockstep.History]] = {}

  def enter(name: str, run: Callable[[int], lockstep.History]) -> None:
    modules_lib.say(f"searching {module}: {name}")
    draws = name.removesuffix(_BY_PART) in contestants.DRAWING
    seeds = range(num_seeds if draws else 1)
    histories[name] = [run(seed * len(problems)) for seed in seeds]

  for name, searcher in {**contestants.OURS, **contestants.OTHERS}.items():
    blind = name in contestants.BLIND
    enter(
      name + _BY_PART if blind else name,
      lambda seed, searcher=searcher: lockstep.run_step(
        searcher, step, max_trials=max_trials, seed=seed
      ),
    )
  for name, searcher in contestants.BLIND.items():
    enter(
      name,
      lambda seed, searcher=searcher: _run_blind(
        searcher, step, problems, max_trials=max_trials, seed=seed
      ),
    )
  return Races(
    module=module,
    num_keys=len(step.keys),
    largest=max(len(problem.keys) for problem in problems),
    default_us=step.timeline(step.default).step_time_us,
    histories=histories,
  )


def _run_blind(
  searcher: searcher_lib.Searcher,
  step: step_lib.Step,
  problems: Sequence[problem_lib.Problem],
  *,
  max_trials: int,
  seed: int,
) -> lockstep.History:
  """Searches a step as a single problem."""
  whole = problem_lib.Problem(
    keys=step.keys,
    programs=tuple(p for one in problems for p in one.programs),
    program_keys=tuple(k for one in problems for k in one.program_keys),
  )
  profile = problem_lib.Predictor(step, whole)
  # Programs leave out what runs beside no collective.
  rest_us = (
    step.timeline(step.default).step_time_us - profile(step.default).total_us
  )
  state = searcher.init(whole, step.cluster, start=step.default, seed=seed)
  best_us: list[float] = []
  while len(best_us) < max_trials and not searcher.done(state):
    found = profile(searcher.ask(state))
    best_us.append(min([rest_us + found.total_us, *best_us[-1:]]))
    state = searcher.tell(state, found)
  return lockstep.History(
    configuration=searcher.best(state), best_us=tuple(best_us)
  )
