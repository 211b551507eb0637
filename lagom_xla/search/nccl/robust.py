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

from collections.abc import Mapping
import dataclasses
import functools

from lagom_xla.costs import nccl
from lagom_xla.costs import scenario as scenario_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.search.nccl import memory
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib
from lagom_xla.search.nccl import trial as trial_lib

Key = step_lib.Key
Options = Mapping[Key, tuple[nccl.Setting, ...]]

# The parts whose errors speak against few channels and for slack; a search in
# each of their scenarios finds what holds there.
_SEARCHED_PARTS = (
  "few_channels",
  "contention",
  "within_nodes",
  "between_nodes",
)
# Times that each key is visited.
_ROUNDS = 2


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
    chooser = _Chooser(step, problem, known, least_gain_us)
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


class _Chooser:
  """The choice for the keys of one problem."""

  def __init__(
    self,
    step: step_lib.Step,
    problem: problem_lib.Problem,
    known: memory.Memory,
    least_us: float,
  ):
    self._step = step
    self._problem = problem
    self._known = known.assured_us
    self._least_us = least_us
    self._asked: set[tuple[nccl.Setting, ...]] = set()
    self._default = {key: step.default[key] for key in problem.keys}

  @property
  def num_trials(self) -> int:
    """Configurations that it asked about, NCCL's own among them."""
    return len(self._asked) + 1

  def choose(
    self, found: list[step_lib.Configuration]
  ) -> step_lib.Configuration:
    """The configuration of the problem with the largest assured gain."""
    options = {
      key: self._options(key, [configuration[key] for configuration in found])
      for key in self._problem.keys
    }
    starts = [
      {
        key: configuration[key] if len(options[key]) > 1 else self._default[key]
        for key in self._problem.keys
      }
      for configuration in found
    ]
    best = max([self._default, *starts], key=self._assured_us)
    for _ in range(_ROUNDS):
      before = best
      for key in self._problem.keys:
        best = self._best_of_key(best, key, options[key])
      if best == before:
        break
    return best

  def _options(
    self, key: Key, found: list[nccl.Setting]
  ) -> tuple[nccl.Setting, ...]:
    """NCCL's own first; alone where nothing else can act or is known."""
    default = self._default[key]
    if scenario_lib.is_small(key) or not self._step.calls[key]:
      return (default,)
    options = [default]
    num_channels = default.num_channels
    while num_channels > 1:
      num_channels //= 2
      options.append(dataclasses.replace(default, num_channels=num_channels))
    for setting in dict.fromkeys(found):
      most = nccl.max_channels(
        self._step.cluster, key.communicator, setting.algorithm
      )
      options += [
        dataclasses.replace(setting, num_channels=num_channels)
        for num_channels in (
          setting.num_channels,
          max(setting.num_channels // 2, 1),
          min(setting.num_channels * 2, most),
        )
      ]
    return tuple(dict.fromkeys(options))

  def _best_of_key(
    self,
    configuration: step_lib.Configuration,
    key: Key,
    options: tuple[nccl.Setting, ...],
  ) -> step_lib.Configuration:
    """With the key's best setting; NCCL's own unless another surely gains."""
    best = {**configuration, key: options[0]}
    best_us = self._assured_us(best) + self._least_us
    for setting in options[1:]:
      changed = {**configuration, key: setting}
      if self._assured_us(changed) > best_us:
        best, best_us = changed, self._assured_us(changed)
    return best

  def _assured_us(self, configuration: step_lib.Configuration) -> float:
    settings = tuple(configuration[key] for key in self._problem.keys)
    self._asked.add(settings)
    if settings not in self._known:
      self._known[settings] = uncertainty.gain(
        self._default_us, self._times(configuration)
      ).low
    return self._known[settings]

  @functools.cached_property
  def _default_us(self) -> uncertainty.Times:
    return self._times(self._default)

  def _times(self, configuration: step_lib.Configuration) -> uncertainty.Times:
    mean_us, *others_us = (
      predict(configuration).total_us for predict in self._predictors
    )
    scenarios = uncertainty.scenarios(self._step.cluster, self._step.measured)
    return uncertainty.Times(
      mean_us=mean_us, by_scenario=dict(zip(scenarios, others_us, strict=True))
    )

  @functools.cached_property
  def _predictors(self) -> list[trial_lib.Predictor]:
    """As predicted, and in each scenario."""
    scenarios = uncertainty.scenarios(self._step.cluster, self._step.measured)
    return [
      trial_lib.Predictor(self._step.under(scenario), self._problem)
      for scenario in (scenario_lib.AS_PREDICTED, *scenarios)
    ]
