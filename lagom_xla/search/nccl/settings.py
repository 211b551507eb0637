# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The NCCL settings of a fixed schedule with the largest assured gain.

The setting with the best mean may rely on the least certain part of the model,
such as the rate of one channel, which was hardly ever measured. So the search
keeps the setting of each key with the largest *assured* gain of its problem:
the low end of the range of its gain over NCCL's own choices
(costs/uncertainty.py). Each further scenario can only lower that end. So a
configuration is replayed in one scenario at a time, until another is surer.

The candidates of a key are NCCL's own choice and every other algorithm and
protocol, each with all of its channels and with fewer: halves, and three
quarters of those, as many products fill their last wave at a power of two.
Other algorithms and protocols use their largest chunks: all measurements have
NCCL's chunks, so no gain of smaller ones is assured. Keys are visited in turn,
each with the current settings of the others. Other searches, such as Lagom's,
find more only in the mean (docs/searching.md).

So a setting that only the mean favors is not chosen. A barely hidden collective
gets more channels, because it would be exposed if it or its kernels took a
little longer or shorter. NCCL's own choice stays if every other setting may
lose. It also stays for collectives below 64 KiB, for keys where it is as good
as any, for keys whose calls NCCL cannot tell from another key's, and for
collectives that XLA runs in its own kernels.

Equal problems share cached results: options that change one part of a schedule
leave the overlaps elsewhere as they were. Results depend only on the problem's
signature, the cluster, the profile and the scenarios.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import dataclasses
import functools
import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import measured as measured_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import scenario as scenario_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.costs.nccl import environment
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.nccl import problem as problem_lib

# The number of cached problems, enough for the last candidates.
_MAX_PROBLEMS = 1024

# Settings of a problem's keys -> gain over NCCL's own choices, in us.
_Gains = dict[tuple[nccl.Setting, ...], float]


@dataclasses.dataclass(frozen=True, slots=True)
class _Known:
  """Cached results of one problem, which searches of it extend.

  Attributes:
    assured_us: assured gains.
    at_most_us: upper bounds of assured gains.
  """

  assured_us: _Gains = dataclasses.field(default_factory=dict)
  at_most_us: _Gains = dataclasses.field(default_factory=dict)


@functools.lru_cache(maxsize=_MAX_PROBLEMS)
def _known_of(
  signature: problem_lib.Signature,
  cluster: cluster_lib.Cluster,
  measured: measured_lib.Measured | None,
  scenarios: tuple[scenario_lib.Scenario, ...],
) -> _Known:
  """A problem's cached results; empty the first time."""
  del signature, cluster, measured, scenarios  # Keys of the cache.
  return _Known()


Key = step_lib.Key
# The most visits to each key.
_ROUNDS = 2

# NCCL lets a tuner raise NVLS chunks above NCCL's own. Whether results are then
# correct was never tested on a GPU.
_MOST_NVLS_CHUNK_BYTES = 128 * 1024


def largest_chunk_bytes(algorithm: str, protocol: str) -> int:
  """The largest chunk to try, a multiple of the protocol's grain."""
  grain = nccl.chunk_grain_bytes(protocol)
  largest = nccl.max_chunk_bytes(algorithm, protocol)
  if algorithm.startswith("nvls"):
    largest = min(largest, _MOST_NVLS_CHUNK_BYTES)
  return largest // grain * grain


def _with_fewer_channels(
  setting: nccl.Setting, call: collective_lib.Call, most: int
) -> Iterator[nccl.Setting]:
  """A setting with all of its channels, and with fewer.

  Every array gets as many channels as the others. So there are only their
  multiples, and NCCL's total of `most`.
  """
  num = setting.num_channels
  while num:
    for fewer in (num, num * 3 // 4):
      if fewer:
        total = call.channels_each(fewer) * call.num_arrays
        yield dataclasses.replace(setting, num_channels=min(total, most))
    num //= 2


def worth_trying(step: step_lib.Step, key: Key) -> tuple[nccl.Setting, ...]:
  """A key's settings, NCCL's own first; only that if no other can be set."""
  default = step.default[key]
  is_fixed = key.kind in nccl.SEND_RECV or not step.calls[key]
  if is_fixed or scenario_lib.is_small(key):
    return (default,)
  communicator = key.communicator
  others = (
    nccl.Setting(
      algorithm=algorithm,
      protocol=protocol,
      num_channels=nccl.max_channels(step.cluster, communicator, algorithm),
      chunk_bytes=largest_chunk_bytes(algorithm, protocol),
    )
    for algorithm, protocol in nccl.candidates(
      step.cluster, communicator, key.kind
    )
  )
  found = [default]
  largest = max(step.calls[key], key=lambda call: call.num_bytes)
  for one in (default, *others):
    most = nccl.max_channels(step.cluster, communicator, one.algorithm)
    found += _with_fewer_channels(one, largest, most)
  return tuple(dict.fromkeys(found))


class _Chooser:
  """The choice for the keys of one problem."""

  def __init__(
    self, step: step_lib.Step, problem: problem_lib.Problem, least_us: float
  ):
    """Starts from cached results.

    Args:
      step: the step.
      problem: a problem of the step.
      least_us: the least assured gain of a setting that replaces NCCL's own.
    """
    self._step = step
    self._problem = problem
    self._scenarios = tuple(
      scenario
      for scenario in uncertainty.scenarios(step.cluster, step.measured)
      if step.may_differ(scenario)
    )
    self._known = _known_of(
      (problem.signature, *environment.costed().items()),
      step.cluster,
      step.measured,
      self._scenarios,
    )
    self._least_us = least_us
    self._asked: set[tuple[nccl.Setting, ...]] = set()
    self._default = {key: step.default[key] for key in problem.keys}
    self._known.assured_us[tuple(self._default.values())] = 0.0

  @property
  def num_trials(self) -> int:
    """The number of configurations whose gain was asked for."""
    return len(self._asked)

  def choose(self) -> step_lib.Configuration:
    """The configuration of the problem with the largest assured gain."""
    best: step_lib.Configuration = self._default
    for _ in range(_ROUNDS):
      before = best
      for key in self._problem.keys:
        best = self._best_of_key(best, key)
      if best == before:
        break
    return best

  def _best_of_key(
    self, configuration: step_lib.Configuration, key: Key
  ) -> step_lib.Configuration:
    """The configuration with the key's best setting.

    NCCL's own setting stays unless another surely gains.
    """
    own, *others = worth_trying(self._step, key)
    best = {**configuration, key: own}
    best_us = self._assured_us(best) + self._least_us
    for setting in others:
      changed = {**configuration, key: setting}
      changed_us = self._assured_us(changed, best_us)
      if changed_us > best_us:
        best, best_us = changed, changed_us
    return best

  def _assured_us(
    self, configuration: step_lib.Configuration, least_us: float = -math.inf
  ) -> float:
    """The assured gain; -inf if it may be no more than `least_us`."""
    settings = tuple(configuration[key] for key in self._problem.keys)
    self._asked.add(settings)
    if settings in self._known.assured_us:
      return self._known.assured_us[settings]
    if self._known.at_most_us.get(settings, math.inf) <= least_us:
      return -math.inf
    gains_us: dict[scenario_lib.Scenario, float] = {}
    assured_us = math.inf
    for scenario, predict in self._predictors.items():
      after_us = predict(configuration)
      gains_us[scenario] = self._default_us[scenario] - after_us
      mean_us = gains_us[scenario_lib.AS_PREDICTED]
      assured_us = uncertainty.combined(mean_us, gains_us).low
      if assured_us <= least_us:  # Further scenarios can only lower it.
        self._known.at_most_us[settings] = assured_us
        return -math.inf
    self._known.assured_us[settings] = assured_us
    return assured_us

  @functools.cached_property
  def _default_us(self) -> Mapping[scenario_lib.Scenario, float]:
    return {
      scenario: predict(self._default)
      for scenario, predict in self._predictors.items()
    }

  @functools.cached_property
  def _predictors(
    self,
  ) -> Mapping[scenario_lib.Scenario, problem_lib.Predictor]:
    """A predictor per scenario; the first is of the model as it is."""
    return {
      scenario: problem_lib.Predictor(self._step.under(scenario), self._problem)
      for scenario in (scenario_lib.AS_PREDICTED, *self._scenarios)
    }


# The least assured gain of all keys' settings together, as a share of the step.
_LEAST_GAIN = 1e-4


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Result:
  """The result of a search.

  Attributes:
    configuration: the surest settings; NCCL's own if no other surely gains.
    default_times: step times under NCCL's own choices, in every scenario.
    tuned_times: step times under `configuration`, in every scenario.
    num_trials: how many configurations were predicted.
  """

  configuration: step_lib.Configuration
  default_times: uncertainty.Times
  tuned_times: uncertainty.Times
  num_trials: int


def search(
  step: step_lib.Step, without_plugin: channel_cap.WithoutPlugin | None = None
) -> Result:
  """Searches the NCCL settings of all problems of a step.

  Args:
    step: the step.
    without_plugin: what a job without the tuner plugin sets; None if the job
      loads the plugin.
  """
  default = uncertainty.times(step, step.default)
  if without_plugin is not None:
    configuration = without_plugin.configuration(step)
    return Result(
      configuration=configuration,
      default_times=default,
      tuned_times=uncertainty.times(step, configuration),
      num_trials=0,
    )
  least_us = _LEAST_GAIN * default.mean_us / max(len(step.keys), 1)
  choosers = [
    _Chooser(step, problem, least_us) for problem in problem_lib.problems(step)
  ]
  configuration = dict(step.default)
  for chooser in choosers:
    configuration.update(chooser.choose())
  tuned = uncertainty.times(step, configuration)
  # Each problem was replayed alone; the whole step must gain, too.
  if uncertainty.gain(default, tuned).low <= 0:
    configuration, tuned = step.default, default
  return Result(
    configuration=configuration,
    default_times=default,
    tuned_times=tuned,
    num_trials=sum(chooser.num_trials for chooser in choosers),
  )
