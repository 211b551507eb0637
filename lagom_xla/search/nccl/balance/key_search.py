# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The search of one tuning key: a survey of its space, then descents.

`searcher.py` has the hyper-parameters, and runs the searches of all keys of a
problem together.
"""

from __future__ import annotations

import dataclasses
import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import space
from lagom_xla.search.nccl import trial as trial_lib
from lagom_xla.search.nccl.balance import descent as descent_lib
from lagom_xla.search.nccl.balance import seen as seen_lib
from lagom_xla.search.nccl.balance import survey


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class KeySearch:
  """Where the search of one key stands.

  Attributes:
    key: which.
    subspaces: of the key.
    programs: positions of the overlaps that it is part of.
    num_sharing: keys in those overlaps, on average.
    seen: its trials in the survey, the start's first.
    point: its place in the pending trial; None when its survey is done.
    descent: the one in progress.
    starts: what was seen where further descents begin.
    others_us: the time of its overlaps without what it costs them, where no
      other key changes that; infinite elsewhere.
    num_trials: trials that it took.
  """

  key: problem_lib.Key
  subspaces: seen_lib.Subspaces
  programs: tuple[int, ...]
  num_sharing: float
  seen: tuple[seen_lib.Seen, ...] = ()
  point: seen_lib.Point | None = None
  descent: descent_lib.Descent | None = None
  starts: tuple[seen_lib.Seen, ...] = ()
  others_us: float = math.inf
  num_trials: int = 0

  @property
  def is_surveyed(self) -> bool:
    """Whether its survey is done."""
    return bool(self.seen) and self.point is None

  @property
  def setting(self) -> nccl.Setting | None:
    """What the survey wants to run next, or found best; None for the start."""
    point = self.point or min(self.seen, key=lambda s: s.loss_us).point
    return point.setting(self.subspaces) if point else None

  def overlap_us(self, overlap_us: tuple[float, ...]) -> float:
    """The time of its overlaps, of all overlaps' times."""
    return sum(overlap_us[program] for program in self.programs)

  def surveyed(
    self,
    setting: nccl.Setting,
    profile: trial_lib.Profile,
    *,
    least_gain: float,
    hidden_share: float,
    max_trials: int,
  ) -> KeySearch:
    """After a trial of its survey with this setting."""
    time_us = profile.key_us[self.key]
    exposed_us = profile.exposed_us[self.key]
    seen = seen_lib.Seen(
      point=self.point or seen_lib.place_of(self.subspaces, setting),
      num_channels=setting.num_channels,
      time_us=time_us,
      exposed_us=exposed_us,
      slowdown_us=profile.slowdown_us[self.key],
      is_hidden=exposed_us <= hidden_share * time_us,
    )
    after = dataclasses.replace(
      self, seen=(*self.seen, seen), num_trials=self.num_trials + 1
    )
    point = survey.next_point(
      self.subspaces,
      after.seen,
      least_gain_us=self._least_gain_us(profile.overlap_us, least_gain),
      max_trials=max_trials,
    )
    return dataclasses.replace(after, point=point)

  def _least_gain_us(
    self, overlap_us: tuple[float, ...], least_gain: float
  ) -> float:
    return least_gain * self.overlap_us(overlap_us) / self.num_sharing

  def ready_to_descend(
    self,
    overlap_us: tuple[float, ...],
    *,
    least_gain: float,
    max_descents: int,
    margin: float,
  ) -> KeySearch:
    """With the best place of each of the best subspaces, if it costs much."""
    best_us = min(s.loss_us for s in self.seen)
    if best_us <= self._least_gain_us(overlap_us, least_gain):
      return self
    starts: dict[int, seen_lib.Seen] = {}
    for seen in sorted(self.seen, key=lambda s: s.loss_us):
      if seen.point and seen.loss_us <= margin * best_us:
        starts.setdefault(seen.point.subspace, seen)
    others_us = self.overlap_us(overlap_us) - best_us
    return dataclasses.replace(
      self,
      starts=tuple(starts.values())[:max_descents],
      others_us=others_us if self.num_sharing == 1 else math.inf,
    )

  def descending(
    self,
    current: nccl.Setting,
    overlap_us: tuple[float, ...],
    *,
    max_trials: int,
  ) -> KeySearch:
    """With a descent in progress, as long as there is one to begin.

    Args:
      current: the best setting so far.
      overlap_us: the time of each overlap under it.
      max_trials: of the key, after which it descends no further.
    """
    search = self
    while search.descent is None or search.descent.pending is None:
      if not search.starts:
        return dataclasses.replace(search, descent=None)
      seen, *starts = search.starts
      assert seen.point is not None
      value_us = search.others_us + seen.loss_us
      if seen.point.setting(search.subspaces) == current:
        value_us = search.overlap_us(overlap_us)
      search = dataclasses.replace(
        search,
        starts=tuple(starts),
        descent=descent_lib.begin(search.subspaces, seen.point, value_us),
      )
    if search.num_trials >= max_trials:
      return dataclasses.replace(search, descent=None, starts=())
    return search

  def descended(self, overlap_us: tuple[float, ...]) -> KeySearch:
    """After a trial of its descent."""
    assert self.descent is not None
    return dataclasses.replace(
      self,
      descent=self.descent.after(self.overlap_us(overlap_us)),
      num_trials=self.num_trials + 1,
    )


def of_problem(
  problem: problem_lib.Problem, cluster: cluster_lib.Cluster
) -> dict[problem_lib.Key, KeySearch]:
  """A search for each key of a problem that has anything to choose."""
  programs: dict[problem_lib.Key, list[int]] = {key: [] for key in problem.keys}
  for position, keys in enumerate(problem.program_keys):
    for key in keys:
      programs[key].append(position)
  searches = {}
  for key in problem.keys:
    subspaces = space.subspaces(key, cluster)
    if any(len(subspace.settings) > 1 for subspace in subspaces):
      sharing = [len(problem.program_keys[p]) for p in programs[key]]
      searches[key] = KeySearch(
        key=key,
        subspaces=subspaces,
        programs=tuple(programs[key]),
        num_sharing=sum(sharing) / len(sharing) if sharing else 1.0,
      )
  return searches
