# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The settings whose gain is surest, chosen from what searches find.

A searcher finds the best settings for costs as they are predicted. What looks
best there may lean on what the model knows least: one channel, say, at a rate
that was hardly ever measured. So a step is searched as predicted, and in the
scenarios (costs/uncertainty.py) that speak most against leaving NCCL's own
choice; and of each key's settings found so, with half and twice the channels,
and NCCL's own with all channels and with fewer, the one is kept that makes the
*assured* gain of its problem largest: the low end of the range of what it gains
over NCCL's own choices.

That settles, without a rule for each: settings that only a mean favours are not
taken; a collective that is only just hidden gets more channels, for it would
show if kernels or it took another time; where every setting may lose, NCCL's
own stays. Collectives below 64 KiB keep NCCL's own always.

A key has a bounded number of settings to choose from and is visited a bounded
number of times, so trials grow linearly with keys.
"""

from __future__ import annotations

import dataclasses

from lagom_xla.costs import scenario as scenario_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.search.nccl import assured
from lagom_xla.search.nccl import memory
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib
from lagom_xla.search.nccl import trial as trial_lib

# The parts whose errors speak against few channels and for slack; a search in
# each of their scenarios finds what holds there.
_SEARCHED_PARTS = (
  "few_channels",
  "contention",
  "within_nodes",
  "between_nodes",
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Result:
  """What a search found.

  Attributes:
    configuration: a setting for each key of the step.
    num_trials: configurations that were profiled, each search's counted.
  """

  configuration: step_lib.Configuration
  num_trials: int


def search(
  step: step_lib.Step, searcher: searcher_lib.Searcher, *, least_gain_us: float
) -> Result:
  """Searches the settings of a step with the largest assured gain.

  Args:
    step: what is searched.
    searcher: how, in each scenario.
    least_gain_us: what a key's setting must gain for sure to be no default.
  """
  configuration = dict(step.default)
  num_trials = 0
  in_step: list[int] = []
  for problem in problem_lib.problems(step):
    known = memory.of(
      problem.signature,
      searcher,
      step.cluster,
      step.measured,
      uncertainty.scenarios(step.cluster, step.measured),
    )
    found = _found(step, problem, searcher, known)
    chooser = assured.Chooser(step, problem, known, least_gain_us)
    configuration.update(chooser.choose([f.configuration for f in found]))
    num_trials += chooser.num_trials
    # A trial of the step tries something in each of its problems.
    needed = [f.num_trials for f in found]
    in_step = list(map(max, needed, in_step or needed))
  return Result(
    configuration=configuration, num_trials=num_trials + sum(in_step)
  )


def _found(
  step: step_lib.Step,
  problem: problem_lib.Problem,
  searcher: searcher_lib.Searcher,
  known: memory.Memory,
) -> list[memory.Found]:
  """What is best as predicted, and in the scenarios that are searched."""
  searched = [scenario_lib.AS_PREDICTED] + [
    scenario
    for scenario in uncertainty.scenarios(step.cluster, step.measured)
    if scenario.part in _SEARCHED_PARTS
  ]
  for scenario in searched:
    if scenario not in known.found:
      state = searcher_lib.run(
        searcher,
        problem,
        step.cluster,
        start=step.default,
        profile=trial_lib.Predictor(step.under(scenario), problem),
      )
      known.found[scenario] = memory.Found(
        configuration=searcher.best(state), num_trials=state.num_trials
      )
  return [known.found[scenario] for scenario in searched]
