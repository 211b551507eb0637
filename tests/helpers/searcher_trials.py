# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trials of searchers: problems, a start, and closed-form overlaps."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses

from benchmarks.searchers import searcher as searcher_lib
from benchmarks.searchers import space as space_lib
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.search.nccl import problem as problem_lib

H100 = cluster_lib.parse("1x8xh100")
MIB = 2**20

OfSetting = Callable[[space_lib.Key, nccl.Setting], float]


def gather(mib: int) -> collective_lib.TuningKey:
  return collective_lib.TuningKey("all-gather", 8, 1, mib * MIB)


def problem_of(*keys: collective_lib.TuningKey) -> problem_lib.Problem:
  """A problem whose keys all share one overlap."""
  return problem_lib.Problem(
    keys=tuple(sorted(keys)), programs=(), program_keys=(frozenset(keys),)
  )


def start_of(problem: problem_lib.Problem) -> space_lib.Configuration:
  return {k: collective_lib.default_setting(k, H100) for k in problem.keys}


def overlap_of(
  problem: problem_lib.Problem,
  kernels_us: float,
  *,
  time_us: OfSetting | None = None,
  lost_us: OfSetting | None = None,
) -> searcher_lib.ProfileFn:
  """An artificial overlap: max(X, Y), where Y grows with each key's cost.

  Args:
    problem: the problem with the keys.
    kernels_us: Y without collectives.
    time_us: time of a key with a setting; by default, as predicted.
    lost_us: loss of kernels by it; by default, from the SMs of its channels.
  """

  def alone_us(key: space_lib.Key, setting: nccl.Setting) -> float:
    if time_us is not None:
      return time_us(key, setting)
    return collective_lib.predict(key, setting, H100).time_us

  def taken_us(key: space_lib.Key, setting: nccl.Setting) -> float:
    if lost_us is not None:
      return lost_us(key, setting)
    return min(alone_us(key, setting), kernels_us) * setting.num_channels / 132

  def profile(configuration: space_lib.Configuration) -> space_lib.Profile:
    key_us = {key: alone_us(key, configuration[key]) for key in problem.keys}
    slowdown_us = {
      key: taken_us(key, configuration[key]) for key in problem.keys
    }
    communication_us = sum(key_us.values())
    computation_us = kernels_us + sum(slowdown_us.values())
    total_us = max(communication_us, computation_us)
    share = (total_us - computation_us) / communication_us
    return space_lib.Profile(
      key_us=key_us,
      exposed_us={key: us * share for key, us in key_us.items()},
      slowdown_us=slowdown_us,
      overlap_us=(total_us,),
      communication_us=communication_us,
      computation_us=computation_us,
      total_us=total_us,
    )

  return profile


@dataclasses.dataclass(frozen=True)
class Trial:
  asked: space_lib.Configuration
  profile: space_lib.Profile


def trials_of(
  searcher: searcher_lib.Searcher,
  problem: problem_lib.Problem,
  profile: searcher_lib.ProfileFn,
  seed: int = 0,
) -> tuple[list[Trial], space_lib.Configuration]:
  """All trials of a searcher, and the best of them."""
  search = searcher_lib.Search(
    searcher, problem, H100, start=start_of(problem), seed=seed
  )
  trials: list[Trial] = []
  while search.asked is not None:
    trials.append(Trial(search.asked, profile(search.asked)))
    search.tell(trials[-1].profile)
    assert len(trials) < 10_000
  return trials, search.best
