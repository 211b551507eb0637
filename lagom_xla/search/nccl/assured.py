# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The configuration of a problem whose gain is surest, of those found.

An assured gain is the low end of a range, which only falls with each scenario
that is replayed. So a configuration is replayed in one after the other, until
it can no longer be the surest.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import functools
import math

from lagom_xla.costs import nccl
from lagom_xla.costs import scenario as scenario_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.search.nccl import memory
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import trial as trial_lib

Key = step_lib.Key
# Times that each key is visited.
_ROUNDS = 2


class Chooser:
  """The choice for the keys of one problem."""

  def __init__(
    self,
    step: step_lib.Step,
    problem: problem_lib.Problem,
    known: memory.Memory,
    least_us: float,
  ):
    """Starts with what is known.

    Args:
      step: what is searched.
      problem: of the step.
      known: of the problem; what is found out is added.
      least_us: what a key's setting must gain for sure to be no default.
    """
    self._step = step
    self._problem = problem
    self._known = known.assured_us
    self._least_us = least_us
    self._asked: set[tuple[nccl.Setting, ...]] = set()
    self._at_most_us: dict[tuple[nccl.Setting, ...], float] = {}
    self._default = {key: step.default[key] for key in problem.keys}
    self._known[tuple(self._default.values())] = 0.0

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
    best, best_us = self._default, self._assured_us(self._default)
    for start in starts:
      start_us = self._assured_us(start, best_us)
      if start_us > best_us:
        best, best_us = start, start_us
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
      changed_us = self._assured_us(changed, best_us)
      if changed_us > best_us:
        best, best_us = changed, changed_us
    return best

  def _assured_us(
    self, configuration: step_lib.Configuration, least_us: float = -math.inf
  ) -> float:
    """The assured gain; -inf where it is not above this."""
    settings = tuple(configuration[key] for key in self._problem.keys)
    self._asked.add(settings)
    if settings in self._known:
      return self._known[settings]
    if self._at_most_us.get(settings, math.inf) <= least_us:
      return -math.inf
    gains_us: dict[scenario_lib.Scenario, float] = {}
    assured_us = math.inf
    for scenario, predict in self._predictors.items():
      after_us = predict(configuration).total_us
      gains_us[scenario] = self._default_us[scenario] - after_us
      mean_us = gains_us[scenario_lib.AS_PREDICTED]
      assured_us = uncertainty.combined(mean_us, gains_us).low
      if assured_us <= least_us:  # Each scenario more only lowers it.
        self._at_most_us[settings] = assured_us
        return -math.inf
    self._known[settings] = assured_us
    return assured_us

  @functools.cached_property
  def _default_us(self) -> Mapping[scenario_lib.Scenario, float]:
    return {
      scenario: predict(self._default).total_us
      for scenario, predict in self._predictors.items()
    }

  @functools.cached_property
  def _predictors(self) -> Mapping[scenario_lib.Scenario, trial_lib.Predictor]:
    """As predicted, which is the first, and in each scenario."""
    scenarios = uncertainty.scenarios(self._step.cluster, self._step.measured)
    return {
      scenario: trial_lib.Predictor(self._step.under(scenario), self._problem)
      for scenario in (scenario_lib.AS_PREDICTED, *scenarios)
    }
