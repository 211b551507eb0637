# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Our own search: every collective just fast enough.

Of the kernels, Lagom (`lagom.py`) only sees Y, the sum of their times, and it
grows all knobs of one collective at a time from the minimum. A profile shows
more: the time that kernels waited for each key, and their slowdown by it. The
sum of these is the key's *loss*. So each key can be judged by itself, and all
keys can move in every trial:

*Survey.* Each key tries all its subspaces, with all channels, a quarter of them
and so on. Keys do not wait for each other; a finished one keeps its best
setting meanwhile.

*Descent.* Then each key descends from the best point of each of its best
subspaces, by the time of all its overlaps: smaller and larger chunks, fewer and
more channels. A move that helps is repeated. If none helps, steps are halved,
down to single ones. A move to smaller chunks or fewer channels helps even if
the time is the same: a chunk larger than the data gains nothing. The descent
covers effects that the survey ignores: chunk sizes, and one key delaying
another. Keys that share an overlap take turns; others move at the same time.

It only uses profiles and the space, so it works on measured steps, too.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
import dataclasses
import math

from benchmarks.searchers import searcher as searcher_lib
from benchmarks.searchers import space as space_lib
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.search.nccl import problem as problem_lib


@dataclasses.dataclass(frozen=True, slots=True)
class _Point:
  """A setting as a point: a subspace, and positions on its two axes."""

  subspace: space_lib.Subspace
  channels_at: int
  chunk_at: int

  @property
  def setting(self) -> nccl.Setting:
    return self.subspace.setting(self.channels_at, self.chunk_at)

  def moved(self, channels: int, chunks: int) -> _Point:
    """The point this much further, or at the end of an axis."""
    return dataclasses.replace(
      self,
      channels_at=_within(
        self.channels_at + channels, len(self.subspace.num_channels)
      ),
      chunk_at=_within(self.chunk_at + chunks, len(self.subspace.chunk_bytes)),
    )


def _within(position: int, size: int) -> int:
  return min(max(position, 0), size - 1)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Unknown:
  """A key with a choice of settings.

  Attributes:
    key: the key.
    subspaces: its subspaces.
    programs: positions of its overlaps.
    num_sharing: average number of keys in those overlaps.
    losses_us: its losses, by point; None is the start.
  """

  key: space_lib.Key
  subspaces: tuple[space_lib.Subspace, ...]
  programs: tuple[int, ...]
  num_sharing: float
  losses_us: dict[_Point | None, float]

  @property
  def least_us(self) -> float:
    """The least loss so far."""
    return min(self.losses_us.values())

  def overlap_us(self, overlap_us: Sequence[float]) -> float:
    """The time of its overlaps, given the times of all."""
    return sum(overlap_us[program] for program in self.programs)

  def survey(self) -> Iterator[_Point]:
    """All points of the survey; LL, which is half flags, comes last."""
    for subspace in sorted(
      reversed(self.subspaces), key=lambda s: s.protocol == "ll"
    ):
      middle = len(subspace.chunk_bytes) // 2
      num_channels = len(subspace.num_channels)
      while num_channels:
        yield _Point(subspace, num_channels - 1, middle)
        num_channels //= 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Balance(searcher_lib.Searcher):
  """Survey and descent of all keys, without randomness.

  Attributes:
    least_gain: the least gain of one key that is worth a trial, as a share of
      its overlaps' time.
    max_descents: subspaces of one key in which it descends.
    descent_margin: descents begin only in subspaces whose loss is at most this
      many times that of the best one, because a descent may halve the loss.
  """

  least_gain: float = 0.003
  max_descents: int = 3
  descent_margin: float = 2.0

  def trials(
    self,
    problem: problem_lib.Problem,
    cluster: cluster_lib.Cluster,
    start: space_lib.Configuration,
    first: space_lib.Profile,
    seed: int,
  ) -> searcher_lib.Trials:
    """Surveys all keys, then descends with each."""
    del seed
    best, best_profile = start, first

    def tried(
      asked: space_lib.Configuration,
    ) -> Generator[
      space_lib.Configuration, space_lib.Profile, space_lib.Profile
    ]:
      nonlocal best, best_profile
      shown = yield asked
      if shown.total_us < best_profile.total_us:
        best, best_profile = asked, shown
      return shown

    unknowns = _unknowns(problem, cluster, first)
    surveys = {unknown: unknown.survey() for unknown in unknowns}
    while surveys:
      asked = dict(start)
      places: dict[_Unknown, _Point] = {}
      for unknown in unknowns:
        survey = surveys.get(unknown)
        place = next(survey, None) if survey else None
        if place is None or unknown.least_us <= self._least_us(unknown, first):
          surveys.pop(unknown, None)
          place = min(unknown.losses_us, key=unknown.losses_us.__getitem__)
        else:
          places[unknown] = place
        if place is not None:
          asked[unknown.key] = place.setting
      # When all are done, tries the best settings together.
      if places or asked != best:
        shown = yield from tried(asked)
        for unknown, place in places.items():
          unknown.losses_us[place] = _loss_us(shown, unknown.key)
    current, overlap_us = dict(best), list(best_profile.overlap_us)
    for turn in _turns(unknowns):
      descents = {
        unknown: self._descents(unknown, current[unknown.key], overlap_us)
        for unknown in turn
        if unknown.least_us > self._least_us(unknown, best_profile)
      }
      places = {
        u: place for u, d in descents.items() if (place := next(d, None))
      }
      while places:
        moved = {u.key: place.setting for u, place in places.items()}
        shown = yield from tried({**current, **moved})
        for unknown in tuple(places):
          key_us = unknown.overlap_us(shown.overlap_us)
          if key_us < unknown.overlap_us(overlap_us):
            current[unknown.key] = moved[unknown.key]
            for program in unknown.programs:
              overlap_us[program] = shown.overlap_us[program]
          try:
            places[unknown] = descents[unknown].send(key_us)
          except StopIteration:
            del places[unknown]
    # The best settings come from different trials, so they are tried together.
    if current != best:
      yield current

  def _least_us(self, unknown: _Unknown, profile: space_lib.Profile) -> float:
    """The least loss of a key that is worth a trial."""
    overlap_us = unknown.overlap_us(profile.overlap_us)
    return self.least_gain * overlap_us / unknown.num_sharing

  def _descents(
    self,
    unknown: _Unknown,
    current: nccl.Setting,
    overlap_us: Sequence[float],
  ) -> Generator[_Point, float, None]:
    """Descends from the best point of each of the best subspaces.

    Args:
      unknown: the key.
      current: the best setting so far.
      overlap_us: the time of each overlap with that setting.
    """
    starts: dict[space_lib.Subspace, _Point] = {}
    for place, loss_us in sorted(
      unknown.losses_us.items(), key=lambda item: item[1]
    ):
      if place and loss_us <= self.descent_margin * unknown.least_us:
        starts.setdefault(place.subspace, place)
    now_us = unknown.overlap_us(overlap_us)
    for place in tuple(starts.values())[: self.max_descents]:
      value_us = math.inf
      if place.setting == current:
        value_us = now_us
      elif unknown.num_sharing == 1:  # No other key changes its overlaps.
        value_us = now_us - unknown.least_us + unknown.losses_us[place]
      yield from _downhill(place, value_us)


def _downhill(place: _Point, value_us: float) -> Generator[_Point, float, None]:
  """Yields points to try, and receives their values to minimize.

  Args:
    place: the first point.
    value_us: its value; infinite if unknown.
  """
  channels = max(place.subspace.num_channels[place.channels_at] // 4, 1)
  chunks = max(len(place.subspace.chunk_bytes) // 2, 1)
  if math.isinf(value_us):
    value_us = yield place
  tried = {place}
  while True:
    move = failures = 0
    moves = ((0, -chunks), (0, chunks), (-channels, 0), (channels, 0))
    while failures < len(moves):
      there = place.moved(*moves[move])
      there_us = math.inf
      if there not in tried:
        tried.add(there)
        there_us = yield there
      takes_less = min(moves[move]) < 0
      if there_us < value_us or (takes_less and there_us == value_us):
        place, value_us, failures = there, there_us, 0
      else:
        move, failures = (move + 1) % len(moves), failures + 1
    if max(channels, chunks) == 1:
      return
    channels, chunks = max(channels // 2, 1), max(chunks // 2, 1)


def _loss_us(profile: space_lib.Profile, key: space_lib.Key) -> float:
  return profile.exposed_us[key] + profile.slowdown_us[key]


def _unknowns(
  problem: problem_lib.Problem,
  cluster: cluster_lib.Cluster,
  first: space_lib.Profile,
) -> list[_Unknown]:
  programs: dict[space_lib.Key, list[int]] = {key: [] for key in problem.keys}
  for position, keys in enumerate(problem.program_keys):
    for key in keys:
      programs[key].append(position)
  found = []
  for key in problem.keys:
    subspaces = space_lib.subspaces(key, cluster)
    if any(len(subspace.settings) > 1 for subspace in subspaces):
      sharing = [len(problem.program_keys[p]) for p in programs[key]]
      found.append(
        _Unknown(
          key=key,
          subspaces=subspaces,
          programs=tuple(programs[key]),
          num_sharing=sum(sharing) / len(sharing) if sharing else 1.0,
          losses_us={None: _loss_us(first, key)},
        )
      )
  return found


def _turns(unknowns: Iterable[_Unknown]) -> list[list[_Unknown]]:
  """Groups of keys without a common overlap; each joins the first possible."""
  groups: list[tuple[list[_Unknown], set[int]]] = []
  for unknown in unknowns:
    free = (group for group in groups if group[1].isdisjoint(unknown.programs))
    group = next(free, None)
    if group is None:
      groups.append(group := ([], set()))
    group[0].append(unknown)
    group[1].update(unknown.programs)
  return [keys for keys, _ in groups]
