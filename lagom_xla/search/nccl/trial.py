# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trials of a problem: one configuration each, and what it showed.

A searcher asks for a configuration and is told what it showed. Here that is
predicted, by a replay of what the trial before did not have.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import itertools
import operator

from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import incremental
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.search.nccl import problem as problem_lib

Key = step_lib.Key
Configuration = step_lib.Configuration


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
  """What one trial of a configuration showed, per step.

  All of it can be read off a trace: nothing says what a collective would take
  alone. Z = Y + all waits.

  Attributes:
    key_us: x_j, the time of each key's collectives as they ran, with what they
      lost to the kernels beside them.
    exposed_us: what kernels waited for each key's collectives.
    slowdown_us: what kernels lost to each key's collectives, over the fastest
      that they ran.
    overlap_us: the time of each of the problem's programs.
    communication_us: X, the sum of `key_us`.
    computation_us: Y, all kernels, slowed as they are.
    total_us: Z, the sum of `overlap_us`.
  """

  key_us: Mapping[Key, float]
  exposed_us: Mapping[Key, float]
  slowdown_us: Mapping[Key, float]
  overlap_us: tuple[float, ...]
  communication_us: float
  computation_us: float
  total_us: float


class Predictor:
  """A predictor of trials of a problem; replays only what each of them changes.

  What it predicts depends on the configuration alone, not on those before.
  """

  def __init__(self, step: step_lib.Step, problem: problem_lib.Problem):
    self._step = step
    self._problem = problem
    self._settings: tuple[nccl.Setting | None, ...] = (None,) * len(
      problem.keys
    )
    self._programs = [
      incremental.IncrementalReplay(
        program, key_of=step.key_of, costs_under=step.costs
      )
      for program, _ in problem.programs
    ]
    self._times = [times for _, times in problem.programs]
    self._programs_of: dict[Key, list[int]] = {k: [] for k in problem.keys}
    for position, keys in enumerate(problem.program_keys):
      for key in keys:
        self._programs_of[key].append(position)
    self._executions = dict.fromkeys(problem.keys, 0)
    for program, times in problem.programs:
      for collective, repeats in program_lib.collectives_in(program):
        self._executions[step.key_of[collective.name]] += times * repeats
    self._overlap_us = [0.0] * len(self._programs)
    self._kernel_us = [0.0] * len(self._programs)
    self._key_us = dict.fromkeys(problem.keys, 0.0)
    self._exposed_us = dict.fromkeys(problem.keys, 0.0)
    self._slowdown_us = dict.fromkeys(problem.keys, 0.0)

  def __call__(self, configuration: Configuration) -> Profile:
    """Predicts one trial."""
    changed = self._change(configuration)
    touched = {p for key in changed for p in self._programs_of[key]}
    affected = set(changed)
    for position in sorted(touched):
      program, times = self._programs[position], self._times[position]
      affected |= program.replay(configuration, changed)
      self._overlap_us[position] = times * program.step_time_us
      self._kernel_us[position] = times * program.kernel_us
    for key in affected:
      self._sum_up(key, configuration[key])
    return Profile(
      key_us=self._key_us.copy(),
      exposed_us=self._exposed_us.copy(),
      slowdown_us=self._slowdown_us.copy(),
      overlap_us=tuple(self._overlap_us),
      communication_us=sum(self._key_us.values()),
      computation_us=sum(self._kernel_us),
      total_us=sum(self._overlap_us),
    )

  def _change(self, configuration: Configuration) -> list[Key]:
    """The keys whose settings are others than in the trial before."""
    keys = self._problem.keys
    settings = tuple(configuration.values())
    # Looking up a key takes ten times as long as seeing that it is in place.
    if len(settings) != len(keys) or not all(
      map(operator.is_, configuration, keys)
    ):
      settings = tuple(configuration[key] for key in keys)
    is_other = map(operator.is_not, settings, self._settings)
    self._settings = settings
    return list(itertools.compress(keys, is_other))

  def _sum_up(self, key: Key, setting: nccl.Setting) -> None:
    exposed_us = slowdown_us = delay_us = 0.0
    for position in self._programs_of[key]:
      lost = self._programs[position].lost(key)
      exposed_us += self._times[position] * lost.exposed_us
      slowdown_us += self._times[position] * lost.slowdown_us
      delay_us += self._times[position] * lost.delay_us
    alone_us = self._step.predict(key, setting).time_us
    self._key_us[key] = alone_us * self._executions[key] + delay_us
    self._exposed_us[key] = exposed_us
    self._slowdown_us[key] = slowdown_us


def profile(
  step: step_lib.Step,
  problem: problem_lib.Problem,
  configuration: Configuration,
) -> Profile:
  """Predicts a single trial of a problem."""
  return Predictor(step, problem)(configuration)
