# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The search of AutoCCL (NSDI 2025), Algorithms 1 and 2.

The idea: make each collective as fast as it gets, and let the kernels be. Its
time has one valley along each knob, so coordinate descent (Algorithm 2) finds
the bottom. Algorithm 1 does so in every subspace of algorithm and protocol, and
keeps the fastest. It tunes every collective by itself, whenever that runs; so a
trial moves all keys at once, and key by key only its own time x_j decides.

`best` is, as of every searcher, the configuration with the least total time.
AutoCCL itself would keep `fastest`, which on overlaps bound by computation can
be slower than NCCL's own choice.

The paper leaves open, and this module settles as its authors' program does
(github.com/gbxu/autoccl):

*Restarts.* After all subspaces once, those whose best is within 1.5 times the
best of all are searched from further random points, five in all.

*Direction.* Algorithm 2 only ever adds lr to a coordinate, which cannot leave a
starting point that is too high. A coordinate is tried upwards, then downwards.

*Step.* lr is a ratio and a coordinate a position: a step goes that share of the
way to the end of the axis, and at least to the next value. lr is BwDelta / Bw,
0.01 at first and after each failure.

*End.* M failures in a row end a descent, M being the number of coordinates;
here that is every coordinate in both directions. Where an axis ends a move
fails without a trial.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import math
import random

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher

# Coordinates (channels, chunk size) and directions, in the order of trial.
_MOVES = ((0, 1), (0, -1), (1, 1), (1, -1))

_Point = tuple[int, int]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Descent:
  """Algorithm 2, in one subspace.

  Attributes:
    subspace: where.
    at: the fastest point so far, as positions on the two axes.
    time_us: x_j there.
    move: which of `_MOVES` is next.
    failures: moves in a row that gained nothing.
    first_lr: the least `lr`.
    lr: relative gain of the last move.
    point: the point of the pending trial; None when the descent has ended.
  """

  subspace: problem_lib.Subspace
  at: _Point
  point: _Point | None
  time_us: float = math.inf
  move: int = 0
  failures: int = 0
  first_lr: float
  lr: float

  def after(self, time_us: float) -> _Descent:
    """With the answer to the pending trial."""
    assert self.point is not None
    if time_us < self.time_us:
      gain = 1 - time_us / self.time_us if self.time_us < math.inf else 0.0
      return dataclasses.replace(
        self,
        at=self.point,
        time_us=time_us,
        failures=0,
        lr=max(gain, self.first_lr),
      )._next()
    return self._failed()._next()

  def _failed(self) -> _Descent:
    return dataclasses.replace(
      self,
      move=(self.move + 1) % len(_MOVES),
      failures=self.failures + 1,
      lr=self.first_lr,
    )

  def _next(self) -> _Descent:
    descent = self
    while descent.failures < len(_MOVES):
      point = descent._moved()
      if point != descent.at:
        return dataclasses.replace(descent, point=point)
      descent = descent._failed()
    return dataclasses.replace(descent, point=None)

  def _moved(self) -> _Point:
    coordinate, direction = _MOVES[self.move]
    axes = (self.subspace.num_channels, self.subspace.chunk_bytes)
    at = self.at[coordinate]
    left = len(axes[coordinate]) - 1 - at if direction > 0 else at
    step = min(left, max(1, round(self.lr * left)))
    point = list(self.at)
    point[coordinate] += direction * step
    return point[0], point[1]


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
  descent: _Descent | None = None

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
      descent=_Descent(
        subspace=subspace, at=point, point=point, first_lr=lr, lr=lr
      ),
    )


Progress = Mapping[problem_lib.Key, _Task]


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
