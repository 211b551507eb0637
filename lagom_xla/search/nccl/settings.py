# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The best NCCL settings for a schedule that is fixed: those of surest gain.

A searcher finds the best settings for costs as they are predicted. What looks
best there may lean on what the model knows least: one channel, say, at a rate
that was hardly ever measured. So a step is searched as predicted, and in the
scenarios (costs/uncertainty.py) that speak most against leaving NCCL's own
choice; and of each key's settings found so, with half and twice the channels,
and NCCL's own with all channels and with fewer, the one is kept that makes the
*assured* gain of its problem largest: the low end of the range of what it gains
over NCCL's own choices. That range only falls with each scenario that is
replayed, so a configuration is replayed in one after the other until it can no
longer be the surest.

That settles, without a rule for each: settings that only a mean favours are not
taken; a collective that is only just hidden gets more channels, for it would
show if kernels or it took another time; where every setting may lose, NCCL's
own stays. Collectives below 64 KiB keep NCCL's own always. So do keys for which
NCCL's own choice is as good, those whose calls NCCL cannot tell from another
key's, and those that XLA runs in kernels of its own.

A key has a bounded number of settings to choose from and is visited a bounded
number of times, so trials grow linearly with keys. What trials of a problem
showed is remembered for its equals: options that change a part of a schedule
leave the overlaps of its other parts as they were (of the 62 problems of the
six candidates that are searched for the Llama example, 26 were searched
before). It depends on the problem's signature, the cluster, the profile and the
scenario alone.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import functools
import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import measured as measured_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import scenario as scenario_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.costs.nccl import environment
from lagom_xla.search.nccl import DEFAULT_SEARCHER
from lagom_xla.search.nccl import SEARCHERS
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib

# Problems that are remembered: those of the last candidates.
_MAX_PROBLEMS = 1024


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Found:
  """What one search of a problem found.

  Attributes:
    configuration: the best.
    num_trials: trials that it took.
  """

  configuration: problem_lib.Configuration
  num_trials: int


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
  """What is known of one problem; whoever searches it adds to that.

  Attributes:
    found: what is best, by the scenario that was searched.
    assured_us: the assured gain over NCCL's own choices, by the settings of the
      problem's keys, in their order.
  """

  found: dict[scenario_lib.Scenario, Found] = dataclasses.field(
    default_factory=dict
  )
  assured_us: dict[tuple[nccl.Setting, ...], float] = dataclasses.field(
    default_factory=dict
  )


@functools.lru_cache(maxsize=_MAX_PROBLEMS)
def of(
  signature: problem_lib.Signature,
  searcher: searcher_lib.Searcher,
  cluster: cluster_lib.Cluster,
  measured: measured_lib.Measured | None,
  scenarios: tuple[scenario_lib.Scenario, ...],
) -> Memory:
  """What is known of a problem; nothing the first time.

  Args:
    signature: the problem's, and the variables that its times are under.
    searcher: that searches it.
    cluster: where it runs.
    measured: costs of a profile; None if all are predicted.
    scenarios: that a gain is assured in.
  """
  del signature, searcher, cluster, measured, scenarios  # Keys of the cache.
  return Memory()


Key = step_lib.Key
# Times that each key is visited.
_ROUNDS = 2


class Chooser:
  """The choice for the keys of one problem."""

  def __init__(
    self,
    step: step_lib.Step,
    problem: problem_lib.Problem,
    known: Memory,
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
  def _predictors(
    self,
  ) -> Mapping[scenario_lib.Scenario, problem_lib.Predictor]:
    """As predicted, which is the first, and in each scenario."""
    scenarios = uncertainty.scenarios(self._step.cluster, self._step.measured)
    return {
      scenario: problem_lib.Predictor(self._step.under(scenario), self._problem)
      for scenario in (scenario_lib.AS_PREDICTED, *scenarios)
    }


# The parts whose errors speak against few channels and for slack; a search in
# each of their scenarios finds what holds there.
_SEARCHED_PARTS = (
  "few_channels",
  "contention",
  "within_nodes",
  "between_nodes",
)


def surest(
  step: step_lib.Step, searcher: searcher_lib.Searcher, *, least_gain_us: float
) -> tuple[step_lib.Configuration, int]:
  """The settings of a step with the largest assured gain, and the trials.

  Args:
    step: what is searched.
    searcher: how, in each scenario.
    least_gain_us: what a key's setting must gain for sure to be no default.
  """
  configuration = dict(step.default)
  num_trials = 0
  in_step: list[int] = []
  for problem in problem_lib.problems(step):
    known = of(
      (problem.signature, *environment.costed().items()),
      searcher,
      step.cluster,
      step.measured,
      uncertainty.scenarios(step.cluster, step.measured),
    )
    found = _found(step, problem, searcher, known)
    chooser = Chooser(step, problem, known, least_gain_us)
    configuration.update(chooser.choose([f.configuration for f in found]))
    num_trials += chooser.num_trials
    # A trial of the step tries something in each of its problems.
    needed = [f.num_trials for f in found]
    in_step = list(map(max, needed, in_step or needed))
  return configuration, num_trials + sum(in_step)


def _found(
  step: step_lib.Step,
  problem: problem_lib.Problem,
  searcher: searcher_lib.Searcher,
  known: Memory,
) -> list[Found]:
  """What is best as predicted, and in the scenarios that are searched."""
  searched = [scenario_lib.AS_PREDICTED] + [
    scenario
    for scenario in uncertainty.scenarios(step.cluster, step.measured)
    if scenario.part in _SEARCHED_PARTS
  ]
  for scenario in searched:
    if scenario not in known.found:
      done = searcher_lib.run(
        searcher,
        problem,
        step.cluster,
        start=step.default,
        profile=problem_lib.Predictor(step.under(scenario), problem),
      )
      known.found[scenario] = Found(
        configuration=done.best, num_trials=done.num_trials
      )
  return [known.found[scenario] for scenario in searched]


# What all settings together must gain for sure, as a share of the step.
_LEAST_GAIN = 1e-4


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Result:
  """What a search found.

  Attributes:
    configuration: the surest settings; NCCL's own where none are surely better.
    default_times: step times under NCCL's own choices, in every scenario.
    tuned_times: step times under `configuration`, in every scenario.
    num_trials: configurations that were profiled.
  """

  configuration: step_lib.Configuration
  default_times: uncertainty.Times
  tuned_times: uncertainty.Times
  num_trials: int


def search(
  step: step_lib.Step,
  searcher: searcher_lib.Searcher = SEARCHERS[DEFAULT_SEARCHER],
) -> Result:
  """Searches the NCCL settings of all problems of a step.

  Args:
    step: what is searched.
    searcher: how, such as `Lagom()`; or that no plugin applies any.
  """
  default = uncertainty.times(step, step.default)
  if isinstance(searcher, channel_cap.WithoutPlugin):
    configuration = searcher.configuration(step)
    return Result(
      configuration=configuration,
      default_times=default,
      tuned_times=uncertainty.times(step, configuration),
      num_trials=0,
    )
  least_us = _LEAST_GAIN * default.mean_us / max(len(step.keys), 1)
  configuration, num_trials = surest(step, searcher, least_gain_us=least_us)
  tuned = uncertainty.times(step, configuration)
  # Problems are replayed apart, and the step as a whole.
  if uncertainty.gain(default, tuned).low <= 0:
    configuration, tuned = step.default, default
  return Result(
    configuration=configuration,
    default_times=default,
    tuned_times=tuned,
    num_trials=num_trials,
  )
