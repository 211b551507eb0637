# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Our own search: every collective just fast enough.

Lagom (`lagom.py`) sees of the kernels only Y, the sum of their times, and grows
all knobs of one collective at a time from the least. A profile shows more: what
was waited for each key, and what kernels lost to it. So each key can be judged
by itself, and all keys can move in every trial:

*Survey.* From NCCL's own choice on, each key looks for the channels with which
it is just fast enough, in all subspaces at once (`foresight.py`). Keys do not
wait for each other; one that is done keeps its best setting meanwhile.

*Descent.* Then each key goes downhill from the best place of each of its best
subspaces, by the time of all its overlaps: chunks smaller and larger, channels
fewer and more. A move that helps is made again, and when none helps the steps
are halved, down to single ones. A move to smaller chunks or fewer channels
helps if the time is the same: a chunk larger than what there is to send gains
nothing. This sees what the survey does not: chunk sizes, and one key holding up
another. Keys that share an overlap take turns, the others go at the same time.

It uses nothing but profiles and the space, so it works on measured steps, too.
Keys that share overlaps take 10 to 50 trials each, others at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import dataclasses
import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.search.nccl import foresight
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib

# (channels, chunk size) by which a move changes the positions.
_MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0))


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Descent:
  """A descent in one subspace, between two trials.

  Attributes:
    subspaces: of the key.
    at: the lowest place so far.
    value_us: what is minimised, there; infinite before its trial.
    steps: the present lengths of steps on the two axes.
    pending: the place of the pending trial; None when the descent has ended.
    move: the move that is being made.
    failures: moves in a row that did not help.
    tried: places that had a trial.
  """

  subspaces: foresight.Subspaces
  at: foresight.Point
  value_us: float
  steps: tuple[int, int]
  pending: foresight.Point | None
  move: int = 0
  failures: int = 0
  tried: frozenset[foresight.Point] = frozenset()

  def after(self, value_us: float) -> Descent:
    """With the answer to the pending trial."""
    assert self.pending is not None
    tried = self.tried | {self.pending}
    takes_less = min(_MOVES[self.move]) < 0
    if value_us < self.value_us or (takes_less and value_us == self.value_us):
      helped = dataclasses.replace(
        self, at=self.pending, value_us=value_us, failures=0, tried=tried
      )
      return helped.moved()
    return dataclasses.replace(self, tried=tried)._failed().moved()

  def moved(self) -> Descent:
    """With the next place that had no trial yet, if there is one."""
    descent = self
    while descent.failures < len(_MOVES):
      place = descent._next()
      if place not in descent.tried and place != descent.at:
        return dataclasses.replace(descent, pending=place)
      descent = descent._failed()
    return dataclasses.replace(descent, pending=None)

  def _failed(self) -> Descent:
    move = (self.move + 1) % len(_MOVES)
    failures = self.failures + 1
    if failures == len(_MOVES) and max(self.steps) > 1:
      channels, chunk = self.steps
      steps = max(channels // 2, 1), max(chunk // 2, 1)
      return dataclasses.replace(self, move=move, failures=0, steps=steps)
    return dataclasses.replace(self, move=move, failures=failures)

  def _next(self) -> foresight.Point:
    subspace = self.subspaces[self.at.subspace]
    channels, chunk = _MOVES[self.move]
    return foresight.Point(
      self.at.subspace,
      _moved(
        self.at.channels_at,
        channels * self.steps[0],
        len(subspace.num_channels),
      ),
      _moved(
        self.at.chunk_at, chunk * self.steps[1], len(subspace.chunk_bytes)
      ),
    )


def _moved(position: int, by: int, size: int) -> int:
  return min(max(position + by, 0), size - 1)


def begin(
  subspaces: foresight.Subspaces,
  at: foresight.Point,
  value_us: float = math.inf,
) -> Descent:
  """A descent from a place; it tries the place itself unless that is known.

  Args:
    subspaces: of the key.
    at: where it begins.
    value_us: what is minimised, there, if that is known.
  """
  subspace = subspaces[at.subspace]
  descent = Descent(
    subspaces=subspaces,
    at=at,
    value_us=value_us,
    steps=(
      max(subspace.num_channels[at.channels_at] // 4, 1),
      max(len(subspace.chunk_bytes) // 2, 1),
    ),
    pending=at,
  )
  return descent if math.isinf(value_us) else descent.moved()


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
  subspaces: foresight.Subspaces
  programs: tuple[int, ...]
  num_sharing: float
  seen: tuple[foresight.Seen, ...] = ()
  point: foresight.Point | None = None
  descent: Descent | None = None
  starts: tuple[foresight.Seen, ...] = ()
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
    profile: problem_lib.Profile,
    *,
    least_gain: float,
    hidden_share: float,
    max_trials: int,
  ) -> KeySearch:
    """After a trial of its survey with this setting."""
    time_us = profile.key_us[self.key]
    exposed_us = profile.exposed_us[self.key]
    seen = foresight.Seen(
      point=self.point or foresight.place_of(self.subspaces, setting),
      num_channels=setting.num_channels,
      time_us=time_us,
      exposed_us=exposed_us,
      slowdown_us=profile.slowdown_us[self.key],
      is_hidden=exposed_us <= hidden_share * time_us,
    )
    after = dataclasses.replace(
      self, seen=(*self.seen, seen), num_trials=self.num_trials + 1
    )
    point = foresight.next_point(
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
    starts: dict[int, foresight.Seen] = {}
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
        descent=begin(search.subspaces, seen.point, value_us),
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
    subspaces = problem_lib.subspaces(key, cluster)
    if any(len(subspace.settings) > 1 for subspace in subspaces):
      sharing = [len(problem.program_keys[p]) for p in programs[key]]
      searches[key] = KeySearch(
        key=key,
        subspaces=subspaces,
        programs=tuple(programs[key]),
        num_sharing=sum(sharing) / len(sharing) if sharing else 1.0,
      )
  return searches


Key = problem_lib.Key
_Searches = Mapping[Key, KeySearch]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
  """What Balance keeps between two trials.

  Attributes:
    searches: of the keys that have anything to choose.
    turns: keys that descend at the same time; the first are those in progress.
    is_surveying: whether the survey is in progress.
    current: the configuration that descents have come to.
    overlap_us: the time of each overlap under it; None before descents.
  """

  searches: _Searches
  turns: tuple[tuple[Key, ...], ...]
  is_surveying: bool
  current: problem_lib.Configuration
  overlap_us: tuple[float, ...] | None


_State = searcher_lib.State[Progress]
_Next = tuple[Progress, problem_lib.Configuration | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Balance(searcher_lib.Searcher[Progress]):
  """Survey and descent of all keys. It draws nothing at random.

  With the defaults 99 % of the overlaps in `benchmarks.search` end within 1 %
  of the optimum, as predicted, and none takes more than the 50 trials per key
  that `benchmarks/search/against_exhaustive.py` allows.

  Attributes:
    least_gain: the share of its overlaps' time below which a gain of one key is
      not worth a trial.
    hidden_share: the share of a collective's time below which it counts as
      hidden, however little is still waited for it.
    max_survey_trials: trials of one key after which its survey ends, the
      start's not counted; one that goes on for so long has missed its goal.
    max_descents: subspaces of one key in which it descends.
    descent_margin: descents begin only in subspaces that lose at most so many
      times what the best one does. The survey may have seen one number of
      channels there, and a descent may halve what that loses.
    max_key_trials: trials of one key after which it descends no further, those
      of its survey counted.
  """

  least_gain: float = 0.003
  hidden_share: float = 0.01
  max_survey_trials: int = 30
  max_descents: int = 3
  descent_margin: float = 2.0
  max_key_trials: int = 48

  def _begin(
    self,
    problem: problem_lib.Problem,
    cluster: cluster_lib.Cluster,
    start: problem_lib.Configuration,
    seed: int,
  ) -> Progress:
    del seed
    searches = of_problem(problem, cluster)
    return Progress(
      searches=searches,
      turns=tuple(_turns(searches)),
      is_surveying=True,
      current=start,
      overlap_us=None,
    )

  def _next(self, state: _State, profile: problem_lib.Profile) -> _Next:
    progress = state.progress
    if progress.is_surveying:
      return self._after_survey(state, profile)
    if progress.overlap_us is None:
      return self._begin_descents(state, progress)
    if progress.turns:
      return self._after_descents(state, profile, progress.overlap_us)
    return progress, None

  def _after_survey(self, state: _State, profile: problem_lib.Profile) -> _Next:
    asked = self.ask(state)
    progress = state.progress
    searches, configuration = dict(progress.searches), dict(asked)
    for key, search in progress.searches.items():
      if not search.is_surveyed:
        search = searches[key] = search.surveyed(
          asked[key],
          profile,
          least_gain=self.least_gain,
          hidden_share=self.hidden_share,
          max_trials=self.max_survey_trials,
        )
        configuration[key] = search.setting or progress.current[key]
    progress = dataclasses.replace(
      progress,
      searches=searches,
      is_surveying=not all(s.is_surveyed for s in searches.values()),
    )
    # The best of each key, together: that is known already where it was tried.
    if not progress.is_surveying and configuration == state.best:
      return self._begin_descents(state, progress)
    return progress, configuration

  def _begin_descents(self, state: _State, progress: Progress) -> _Next:
    """Goes on from the best configuration so far."""
    assert state.best_profile is not None
    overlap_us = state.best_profile.overlap_us
    return self._next_descents(
      state,
      dataclasses.replace(
        progress,
        searches={
          key: search.ready_to_descend(
            overlap_us,
            least_gain=self.least_gain,
            max_descents=self.max_descents,
            margin=self.descent_margin,
          )
          for key, search in progress.searches.items()
        },
        current=state.best,
        overlap_us=overlap_us,
      ),
      overlap_us,
    )

  def _after_descents(
    self,
    state: _State,
    profile: problem_lib.Profile,
    before_us: tuple[float, ...],
  ) -> _Next:
    asked = self.ask(state)
    progress = state.progress
    searches, current = dict(progress.searches), dict(progress.current)
    overlap_us = list(before_us)
    for key in progress.turns[0]:
      search = searches[key]
      if search.descent is None:
        continue
      if search.overlap_us(profile.overlap_us) < search.overlap_us(before_us):
        current[key] = asked[key]
        for program in search.programs:
          overlap_us[program] = profile.overlap_us[program]
      searches[key] = search.descended(profile.overlap_us)
    after_us = tuple(overlap_us)
    progress = dataclasses.replace(
      progress, searches=searches, current=current, overlap_us=after_us
    )
    return self._next_descents(state, progress, after_us)

  def _next_descents(
    self, state: _State, progress: Progress, overlap_us: tuple[float, ...]
  ) -> _Next:
    """Asks for the next place of each key whose turn it is; then ends."""
    searches, turns = dict(progress.searches), progress.turns
    while turns:
      asked = dict(progress.current)
      for key in turns[0]:
        search = searches[key].descending(
          progress.current[key], overlap_us, max_trials=self.max_key_trials
        )
        searches[key] = search
        if search.descent and search.descent.pending:
          asked[key] = search.descent.pending.setting(search.subspaces)
      if any(searches[key].descent for key in turns[0]):
        return (
          dataclasses.replace(progress, searches=searches, turns=turns),
          asked,
        )
      turns = turns[1:]
    # What the keys came to in different trials was not tried together.
    is_known = progress.current == state.best
    return (
      dataclasses.replace(progress, searches=searches, turns=()),
      None if is_known else progress.current,
    )


def _turns(searches: _Searches) -> Iterator[tuple[Key, ...]]:
  """Groups of keys without a common overlap: each joins the first it can."""
  groups: list[tuple[list[Key], set[int]]] = []
  for key, search in searches.items():
    free = (group for group in groups if group[1].isdisjoint(search.programs))
    group = next(free, None)
    if group is None:
      groups.append(group := ([], set()))
    group[0].append(key)
    group[1].update(search.programs)
  return (tuple(keys) for keys, _ in groups)
