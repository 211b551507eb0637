# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Optuna's tree-structured Parzen estimator (TPE), as a searcher.

For each key it chooses a subspace, and in it the channels and the position of
the chunk size. Its objective is the problem's total time. The first trial is
the configuration without tuning, as the nearest point of its space. Everything
else is Optuna's default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses

import optuna

from benchmarks.searchers import searcher
from benchmarks.searchers import space as space_lib
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.search.nccl import problem as problem_lib

_Subspaces = tuple[space_lib.Subspace, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TPE(searcher.Searcher):
  """Optuna's tree-structured Parzen estimator.

  Attributes:
    max_trials: trials after which it ends, unless the caller ends it earlier.
  """

  max_trials: int = 1000

  def trials(
    self,
    problem: problem_lib.Problem,
    cluster: cluster_lib.Cluster,
    start: space_lib.Configuration,
    first: space_lib.Profile,
    seed: int,
  ) -> searcher.Trials:
    """Asks for the trials of Optuna's study."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    subspaces = {key: space_lib.subspaces(key, cluster) for key in problem.keys}
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    nearest: dict[str, int] = {}
    for position, (key, choices) in enumerate(subspaces.items()):
      nearest |= _nearest(position, choices, start[key])
    study.enqueue_trial(nearest)
    is_fixed = all(
      len(choices) == len(choices[0].settings) == 1
      for choices in subspaces.values()
    )
    trial = study.ask()  # The start's.
    _suggested(trial, subspaces)
    study.tell(trial, first.total_us)
    for _ in range(0 if is_fixed else self.max_trials - 1):
      trial = study.ask()
      shown = yield _suggested(trial, subspaces)
      study.tell(trial, shown.total_us)


def _names(position: int, index: int) -> tuple[str, str, str]:
  """Optuna's names of the choices for a key, in one of its subspaces."""
  return (
    f"{position} subspace",
    f"{position} channels {index}",
    f"{position} chunk {index}",
  )


def _suggested(
  trial: optuna.Trial, subspaces: Mapping[space_lib.Key, _Subspaces]
) -> space_lib.Configuration:
  found = {}
  for position, (key, choices) in enumerate(subspaces.items()):
    which, *_ = _names(position, 0)
    index = trial.suggest_categorical(which, range(len(choices)))
    _, channels, chunk = _names(position, index)
    subspace = choices[index]
    found[key] = subspace.setting(
      trial.suggest_int(channels, 0, len(subspace.num_channels) - 1),
      trial.suggest_int(chunk, 0, len(subspace.chunk_bytes) - 1),
    )
  return found


def _nearest(
  position: int, subspaces: _Subspaces, setting: nccl.Setting
) -> dict[str, int]:
  """The point of the space nearest to a setting."""
  wanted = (setting.algorithm, setting.protocol)
  names = [(s.algorithm, s.protocol) for s in subspaces]
  index = names.index(wanted) if wanted in names else 0

  def at(axis: Sequence[int], value: int) -> int:
    return min(range(len(axis)), key=lambda i: abs(axis[i] - value))

  which, channels, chunk = _names(position, index)
  return {
    which: index,
    channels: at(subspaces[index].num_channels, setting.num_channels),
    chunk: at(subspaces[index].chunk_bytes, setting.chunk_bytes),
  }
