# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tree-structured Parzen estimator: Optuna's, as a searcher.

For each key it chooses a subspace, and in it the channels and the position of
the chunk size; its objective is the problem's total time. The first trial is
what runs without tuning, which it gets as the nearest point of its space. All
else is Optuna's default.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
from typing import Any

import optuna

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher

_Subspaces = tuple[problem_lib.Subspace, ...]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
  """What Optuna learned. The study is its own, and changes in place.

  Attributes:
    subspaces: of each key.
    study: what was learned.
    trial: the pending trial; None while it is the start's.
  """

  subspaces: Mapping[problem_lib.Key, _Subspaces]
  study: optuna.Study
  trial: optuna.Trial | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TPE(searcher.Searcher[Progress]):
  """Optuna's tree-structured Parzen estimator.

  Attributes:
    max_trials: trials after which it is done, unless it is ended before.
  """

  max_trials: int = 1000

  def _begin(
    self,
    problem: problem_lib.Problem,
    cluster: cluster_lib.Cluster,
    start: problem_lib.Configuration,
    seed: int,
  ) -> Progress:
    del start
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return Progress(
      subspaces={
        key: problem_lib.subspaces(key, cluster) for key in problem.keys
      },
      study=optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed)),
      trial=None,
    )

  def _next(
    self, state: searcher.State[Progress], profile: problem_lib.Profile
  ) -> tuple[Progress, problem_lib.Configuration | None]:
    progress = state.progress
    study, subspaces = progress.study, progress.subspaces
    if progress.trial is None:
      trial = _start_trial(subspaces, state.start, profile.total_us)
      study.add_trial(trial)
    else:
      study.tell(progress.trial, profile.total_us)
    is_fixed = all(
      len(choices) == len(choices[0].settings) == 1
      for choices in subspaces.values()
    )
    if is_fixed or state.num_trials >= self.max_trials:
      return progress, None
    trial = study.ask()
    return dataclasses.replace(progress, trial=trial), {
      key: _suggested(trial, position, choices)
      for position, (key, choices) in enumerate(subspaces.items())
    }


def _axes(
  position: int, subspaces: _Subspaces, subspace_at: int
) -> dict[str, range]:
  """What there is to choose for a key, by the name that Optuna gets."""
  subspace = subspaces[subspace_at]
  return {
    f"{position} subspace": range(len(subspaces)),
    f"{position} channels {subspace_at}": range(len(subspace.num_channels)),
    f"{position} chunk {subspace_at}": range(len(subspace.chunk_bytes)),
  }


def _suggested(
  trial: optuna.Trial, position: int, subspaces: _Subspaces
) -> nccl.Setting:
  subspace_at = trial.suggest_categorical(
    f"{position} subspace", range(len(subspaces))
  )
  _, channels, chunk = _axes(position, subspaces, subspace_at).items()
  return subspaces[subspace_at].setting(
    *(
      trial.suggest_int(name, 0, len(axis) - 1)
      for name, axis in (channels, chunk)
    )
  )


def _start_trial(
  subspaces: Mapping[problem_lib.Key, _Subspaces],
  start: problem_lib.Configuration,
  total_us: float,
) -> optuna.trial.FrozenTrial:
  params: dict[str, Any] = {}
  distributions: dict[str, optuna.distributions.BaseDistribution] = {}
  for position, (key, choices) in enumerate(subspaces.items()):
    chosen = _nearest(choices, start[key])
    first, *others = _axes(position, choices, chosen[0]).items()
    name, axis = first
    distributions[name] = optuna.distributions.CategoricalDistribution(axis)
    for name, axis in others:
      distributions[name] = optuna.distributions.IntDistribution(
        0, len(axis) - 1
      )
    names = (first[0], *(name for name, _ in others))
    params.update(zip(names, chosen, strict=True))
  return optuna.trial.create_trial(
    params=params, distributions=distributions, value=total_us
  )


def _nearest(
  subspaces: _Subspaces, setting: nccl.Setting
) -> tuple[int, int, int]:
  """Positions of the subspace, the channels and the chunk."""
  wanted = (setting.algorithm, setting.protocol)
  names = [(s.algorithm, s.protocol) for s in subspaces]
  subspace_at = names.index(wanted) if wanted in names else 0
  subspace = subspaces[subspace_at]

  def at(axis: tuple[int, ...], value: int) -> int:
    return min(range(len(axis)), key=lambda i: abs(axis[i] - value))

  return (
    subspace_at,
    at(subspace.num_channels, setting.num_channels),
    at(subspace.chunk_bytes, setting.chunk_bytes),
  )
