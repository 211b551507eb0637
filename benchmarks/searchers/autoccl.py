# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The search of AutoCCL (NSDI 2025): its Algorithm 1, subspace by subspace.

The idea: make each collective as fast as it gets, and let the kernels be. Its
time has one valley along each knob, so coordinate descent (Algorithm 2,
autoccl_descent.py) finds the bottom. Algorithm 1 does so in every subspace of
algorithm and protocol, and keeps the fastest.

It tunes every collective by itself, whenever that runs; so a trial moves all
keys at once, and key by key only its own time x_j decides.

The paper leaves restarts open; as in its authors' program
(github.com/gbxu/autoccl), after all subspaces once, those whose best is within
1.5 times the best of all are searched from further random points, five in all.

`best` is, as of every searcher, the configuration with the least total time.
AutoCCL itself would keep `fastest`, which on overlaps bound by computation can
be slower than NCCL's own choice.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import math
import random

from benchmarks.searchers import autoccl_descent
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher

Key = problem_lib.Key


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Task:
  """Algorithm 1, for one tuning key.

  Attributes:
    hyper_parameters: of the search.
    subspaces: all of the key.
    seed: of its random points.
    fastest: the fastest setting so far, and its time.
    times_us: the least time in each subspace.
    queue: positions of the subspaces still to search in this round, the one
      in progress first.
    round: how often subspaces were started before.
    descent: the one in progress; None when all are done.
  """

  hyper_parameters: AutoCCL
  subspaces: tuple[problem_lib.Subspace, ...]
  seed: str
  fastest: tuple[nccl.Setting, float]
  times_us: tuple[float, ...]
  queue: tuple[int, ...]
  round: int = 0
  descent: autoccl_descent.Descent | None = None

  @property
  def setting(self) -> nccl.Setting:
    """What it runs in the pending trial."""
    if self.descent is None or self.descent.point is None:
      return self.fastest[0]
    return self.descent.subspace.setting(*self.descent.point)

  def after(self, time_us: float) -> _Task:
    """With the time of its collectives in the trial that was asked for."""
    task = self
    if time_us < self.fastest[1]:
      task = dataclasses.replace(self, fastest=(self.setting, time_us))
    if self.descent is None:
      return task
    descent = self.descent.after(time_us)
    position = self.queue[0]
    times_us = list(self.times_us)
    times_us[position] = min(times_us[position], descent.time_us)
    task = dataclasses.replace(task, descent=descent, times_us=tuple(times_us))
    if descent.point is not None:
      return task
    return dataclasses.replace(task, queue=self.queue[1:]).started()

  def started(self) -> _Task:
    """With the next descent begun, if there is one left."""
    task = self
    if not task.queue and task.round + 1 < task.hyper_parameters.num_starts:
      limit_us = task.hyper_parameters.restart_margin * min(self.times_us)
      near = [i for i, us in enumerate(self.times_us) if us <= limit_us]
      task = dataclasses.replace(task, queue=tuple(near), round=task.round + 1)
    if not task.queue:
      return dataclasses.replace(task, descent=None)
    position = task.queue[0]
    subspace = task.subspaces[position]
    rng = random.Random(f"{task.seed} {task.round} {position}")
    point = (
      rng.randrange(len(subspace.num_channels)),
      rng.randrange(len(subspace.chunk_bytes)),
    )
    lr = task.hyper_parameters.first_lr
    return dataclasses.replace(
      task,
      descent=autoccl_descent.Descent(
        subspace=subspace, at=point, point=point, first_lr=lr, lr=lr
      ),
    )


Progress = Mapping[Key, _Task]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AutoCCL(searcher.Searcher[Progress]):
  """AutoCCL's search. What it keeps between trials is the search of each key.

  Attributes:
    first_lr: the least share of the way to the end of an axis that a step goes
      (Algorithm 2).
    num_starts: rounds of descents, each from other random points, as in the
      authors' program.
    restart_margin: rounds after the first are of subspaces whose best is within
      this times the best of all, as in the authors' program.
  """

  first_lr: float = 0.01
  num_starts: int = 5
  restart_margin: float = 1.5

  def fastest(
    self, state: searcher.State[Progress]
  ) -> problem_lib.Configuration:
    """What AutoCCL keeps: for each key the setting of the least time x_j."""
    return {key: task.fastest[0] for key, task in state.progress.items()}

  def _begin(
    self,
    problem: problem_lib.Problem,
    cluster: cluster_lib.Cluster,
    start: problem_lib.Configuration,
    seed: int,
  ) -> Progress:
    tasks = {}
    for key in problem.keys:
      subspaces = problem_lib.subspaces(key, cluster)
      is_fixed = all(len(subspace.settings) == 1 for subspace in subspaces)
      tasks[key] = _Task(
        hyper_parameters=self,
        subspaces=subspaces,
        seed=f"{seed} {key}",
        fastest=(start[key], math.inf),
        times_us=(math.inf,) * len(subspaces),
        queue=() if is_fixed else tuple(range(len(subspaces))),
        round=self.num_starts if is_fixed else 0,
      )
    return tasks

  def _next(
    self, state: searcher.State[Progress], profile: problem_lib.Profile
  ) -> tuple[Progress, problem_lib.Configuration | None]:
    tasks = {
      key: task.after(profile.key_us[key])
      for key, task in state.progress.items()
    }
    if state.num_trials == 1:  # The start's.
      tasks = {key: task.started() for key, task in tasks.items()}
    if all(task.descent is None for task in tasks.values()):
      return tasks, None
    return tasks, {key: task.setting for key, task in tasks.items()}
