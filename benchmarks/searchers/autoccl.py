# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The search of AutoCCL (NSDI 2025), Algorithms 1 and 2.

The idea: make each collective as fast as possible, and ignore the kernels. A
collective's time has one minimum along each knob, so coordinate descent
(Algorithm 2) finds it. Algorithm 1 does this in every subspace of algorithm and
protocol, and keeps the fastest. It tunes every collective by itself, whenever
it runs; so a trial moves all keys at once, and only a key's own time x_j
decides.

As for every searcher, `best` is the configuration with the least total time.
AutoCCL itself would keep `Fastest`, which can be slower than NCCL's own choice
on overlaps bound by computation.

For details that the paper leaves open, this module follows its authors' program
(github.com/gbxu/autoccl):

*Restarts.* After all subspaces once, those whose best is within 1.5 times the
best of all are searched from further random points, five in all.

*Direction.* Algorithm 2 only adds lr to a coordinate, which cannot leave a
starting point that is too high. Each coordinate is tried upward, then downward.

*Step.* lr is a ratio and a coordinate a position: a step goes that share of the
way to the end of the axis, and at least to the next value. lr is BwDelta / Bw,
0.01 at first and after each failure.

*End.* M failures in a row end a descent, where M is the number of coordinates;
here, every coordinate counts in both directions. At the end of an axis, a move
fails without a trial.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
import dataclasses
import math
import random

from benchmarks.searchers import searcher
from benchmarks.searchers import space as space_lib
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.search.nccl import problem as problem_lib

# Coordinates (channels, chunk size) and directions, in the order of trial.
_MOVES = ((0, 1), (0, -1), (1, 1), (1, -1))

# A search of one key; it yields settings and receives their times.
_Times = Generator[nccl.Setting, float, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AutoCCL(searcher.Searcher):
  """AutoCCL's search.

  Attributes:
    first_lr: the smallest step, as a share of the way to the end of an axis
      (Algorithm 2).
    num_starts: rounds of descents, each from other random points, as in the
      authors' program.
    restart_margin: later rounds only search subspaces whose best is within this
      factor of the best of all, as in the authors' program.
  """

  first_lr: float = 0.01
  num_starts: int = 5
  restart_margin: float = 1.5

  def trials(
    self,
    problem: problem_lib.Problem,
    cluster: cluster_lib.Cluster,
    start: space_lib.Configuration,
    first: space_lib.Profile,
    seed: int,
  ) -> searcher.Trials:
    """Searches all keys at once, each by its own time."""
    fastest = Fastest(start)
    fastest.add(start, first)
    searches: dict[space_lib.Key, _Times] = {}
    for key in problem.keys:
      subspaces = space_lib.subspaces(key, cluster)
      if any(len(subspace.settings) > 1 for subspace in subspaces):
        searches[key] = self._of_key(subspaces, f"{seed} {key}")
    pending = {key: next(search) for key, search in searches.items()}
    while pending:
      asked = {**fastest.configuration, **pending}
      shown = yield asked
      fastest.add(asked, shown)
      for key in tuple(pending):
        try:
          pending[key] = searches[key].send(shown.key_us[key])
        except StopIteration:
          del pending[key]

  def _of_key(
    self, subspaces: Sequence[space_lib.Subspace], seed: str
  ) -> _Times:
    """Algorithm 1; returns the least time."""
    times_us = [math.inf] * len(subspaces)
    for nth in range(self.num_starts):
      limit_us = self.restart_margin * min(times_us)
      near = [i for i, us in enumerate(times_us) if us <= limit_us]
      for position in near:
        rng = random.Random(f"{seed} {nth} {position}")
        found_us = yield from self._descend(subspaces[position], rng)
        times_us[position] = min(times_us[position], found_us)
    return min(times_us)

  def _descend(
    self, subspace: space_lib.Subspace, rng: random.Random
  ) -> _Times:
    """Algorithm 2, from a random point; returns the time at its end."""
    axes = (subspace.num_channels, subspace.chunk_bytes)
    at = [rng.randrange(len(axis)) for axis in axes]
    least_us = yield subspace.setting(*at)
    move = failures = 0
    lr = self.first_lr
    while failures < len(_MOVES):
      coordinate, direction = _MOVES[move]
      left = at[coordinate]
      if direction > 0:
        left = len(axes[coordinate]) - 1 - left
      point = list(at)
      point[coordinate] += direction * min(left, max(1, round(lr * left)))
      time_us = math.inf
      if point != at:
        time_us = yield subspace.setting(*point)
      if time_us < least_us:
        lr = max(1 - time_us / least_us, self.first_lr)
        at, least_us, failures = point, time_us, 0
      else:
        lr = self.first_lr
        move, failures = (move + 1) % len(_MOVES), failures + 1
    return least_us


class Fastest:
  """AutoCCL's result: for each key, the setting with the least x_j.

  Attributes:
    configuration: those settings.
  """

  def __init__(self, start: space_lib.Configuration):
    self.configuration = dict(start)
    self._key_us = dict.fromkeys(start, math.inf)

  def add(
    self, tried: space_lib.Configuration, shown: space_lib.Profile
  ) -> None:
    """Adds a trial."""
    for key, least_us in self._key_us.items():
      if shown.key_us[key] < least_us:
        self.configuration[key] = tried[key]
        self._key_us[key] = shown.key_us[key]
