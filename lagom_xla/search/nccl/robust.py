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

from lagom_xla.costs import nccl
from lagom_xla.costs import scenario as scenario_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.search.nccl import lockstep
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib

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
  found, num_trials = _found(step, searcher)
  configuration = dict(step.default)
  for problem in problem_lib.problems(step):
    chooser = _Chooser(step, problem, least_gain_us)
    configuration.update(chooser.choose(found))
    num_trials += chooser.num_trials
  return Result(configuration=configuration, num_trials=num_trials)


def _found(
  step: step_lib.Step, searcher: searcher_lib.Searcher
) -> tuple[list[step_lib.Configuration], int]:
  """What is best as predicted, and in the scenarios that are searched."""
  searched = [scenario_lib.AS_PREDICTED] + [
    scenario
    for scenario in uncertainty.scenarios(step.cluster, step.measured)
    if scenario.part in _SEARCHED_PARTS
  ]
  configurations, num_trials = [], 0
  for scenario in searched:
    history = lockstep.run_step(searcher, step.under(scenario))
    configurations.append(history.configuration)
    num_trials += history.num_trials
  return configurations, num_trials


class _Chooser:
  """The choice for the keys of one problem."""

  def __init__(
    self, step: step_lib.Step, problem: problem_lib.Problem, least_us: float
  ):
    self._step = step
    self._problem = problem
    self._least_us = least_us
    self._scenarios = uncertainty.scenarios(step.cluster, step.measured)
    self._predict = problem_lib.Predictor(step, problem)
    self._predict_in = [
      problem_lib.Predictor(step.under(scenario), problem)
      for scenario in self._scenarios
    ]
    self._known: dict[tuple[nccl.Setting, ...], float] = {}
    self._default = {key: step.default[key] for key in problem.keys}
    self._default_us = self._times(self._default)

  @property
  def num_trials(self) -> int:
    return len(self._known) + 1

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
    if settings not in self._known:
      self._known[settings] = uncertainty.gain(
        self._default_us, self._times(configuration)
      ).low
    return self._known[settings]

  def _times(self, configuration: step_lib.Configuration) -> uncertainty.Times:
    return uncertainty.Times(
      mean_us=self._predict(configuration).total_us,
      by_scenario={
        scenario: predict(configuration).total_us
        for scenario, predict in zip(
          self._scenarios, self._predict_in, strict=True
        )
      },
    )
