# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Optuna's tree-structured Parzen estimator as a searcher.

For each key it chooses a subspace, and in it the channels and the position of
the chunk size; its objective is the problem's total time. The first trial is
what runs without tuning, of which it is told as the nearest point of its space.
All else is as Optuna has it by default.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import optuna

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher
from lagom_xla.search.nccl import space

# Trials until it is done, where nobody ends it before.
NUM_TRIALS = 1000

_Subspaces = tuple[space.Subspace, ...]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class State:
  """Between two trials. The study is Optuna's own, and changes.

  Attributes:
    subspaces: of each key.
    start: what runs without tuning.
    study: what was learned.
    trial: the pending trial; None while it is the start's.
    asked: the configuration of the pending trial.
    best: the best so far.
  """

  subspaces: dict[problem_lib.Key, _Subspaces]
  start: problem_lib.Configuration
  study: optuna.Study
  trial: optuna.Trial | None
  asked: problem_lib.Configuration
  best: searcher.Best
  num_trials: int = 0


def init(
  problem: problem_lib.Problem,
  cluster: cluster_lib.Cluster,
  *,
  start: problem_lib.Configuration,
  seed: int = 0,
) -> State:
  """See `searcher.Searcher`."""
  optuna.logging.set_verbosity(optuna.logging.ERROR)
  start = searcher.start_of(problem, start)
  return State(
    subspaces={key: space.subspaces(key, cluster) for key in problem.keys},
    start=start,
    study=optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed)),
    trial=None,
    asked=start,
    best=searcher.Best(configuration=start),
  )


def ask(state: State) -> problem_lib.Configuration:
  """See `searcher.Searcher`."""
  if done(state):
    raise searcher.nothing_left()
  return state.asked


def tell(state: State, profile: problem_lib.Profile) -> State:
  """See `searcher.Searcher`."""
  best_so_far = state.best.after(ask(state), profile)
  if state.trial is None:
    state.study.add_trial(_start_trial(state, profile.total_us))
  else:
    state.study.tell(state.trial, profile.total_us)
  trial = state.study.ask()
  return dataclasses.replace(
    state,
    trial=trial,
    asked={
      key: _suggested(trial, position, subspaces)
      for position, (key, subspaces) in enumerate(state.subspaces.items())
    },
    best=best_so_far,
    num_trials=state.num_trials + 1,
  )


def done(state: State) -> bool:
  """See `searcher.Searcher`."""
  is_fixed = all(
    len(subspaces) == len(subspaces[0].settings) == 1
    for subspaces in state.subspaces.values()
  )
  return state.num_trials == (1 if is_fixed else NUM_TRIALS)


def best(state: State) -> problem_lib.Configuration:
  """See `searcher.Searcher`."""
  return state.best.configuration


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


def _start_trial(state: State, total_us: float) -> optuna.trial.FrozenTrial:
  params: dict[str, Any] = {}
  distributions: dict[str, optuna.distributions.BaseDistribution] = {}
  for position, (key, subspaces) in enumerate(state.subspaces.items()):
    chosen = _nearest(subspaces, state.start[key])
    first, *others = _axes(position, subspaces, chosen[0]).items()
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
