# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every collective just fast enough: our own search, beside Lagom's.

Lagom (`lagom.py`) sees of the kernels only Y, the sum of their times, and grows
all knobs of one collective at a time from the least. A profile shows more: what
was waited for each key, and what kernels lost to it. So each key can be judged
by itself, and all keys can move in every trial:

*Survey.* From NCCL's own choice on, each key looks for the channels with which
it is just fast enough, in all subspaces at once (`survey.py`). Keys do not wait
for each other; one that is done keeps its best setting meanwhile.

*Descent.* Then each key goes downhill from the best place of each of its best
subspaces, three at most (`descent.py`), by the time of all its overlaps.
This sees what the survey does not: chunk sizes, and one key holding up another.
Keys that share an overlap take turns, the others go at the same time.

It uses nothing but profiles and the space, so it works on measured steps as on
predicted ones. Keys that share overlaps take 10 to 50 trials each, keys that do
not take theirs at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import dataclasses

from lagom_xla import cluster as cluster_lib
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher
from lagom_xla.search.nccl import space
from lagom_xla.search.nccl.balance import key_search

Key = problem_lib.Key
_Searches = Mapping[Key, key_search.KeySearch]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class State:
  """Between two trials.

  Attributes:
    searches: of the keys that have anything to choose.
    turns: keys that go downhill at the same time; the first are under way.
    is_surveying: whether the survey is under way.
    current: the configuration that descents have come to.
    overlap_us: the time of each overlap under it; None before descents.
    asked: the configuration of the pending trial; None when all is done.
    best: the best so far.
    best_overlap_us: the time of each overlap under it.
  """

  searches: _Searches
  turns: tuple[tuple[Key, ...], ...]
  is_surveying: bool
  current: problem_lib.Configuration
  overlap_us: tuple[float, ...] | None
  asked: problem_lib.Configuration | None
  best: searcher.Best
  best_overlap_us: tuple[float, ...] = ()


def init(
  problem: problem_lib.Problem,
  cluster: cluster_lib.Cluster,
  *,
  start: problem_lib.Configuration,
  seed: int = 0,
) -> State:
  """See `searcher.Searcher`. Nothing is drawn at random."""
  del seed
  start = searcher.start_of(problem, start)
  programs: dict[Key, list[int]] = {key: [] for key in problem.keys}
  for position, keys in enumerate(problem.program_keys):
    for key in keys:
      programs[key].append(position)
  searches = {}
  for key in problem.keys:
    subspaces = space.subspaces(key, cluster)
    if any(len(subspace.settings) > 1 for subspace in subspaces):
      sharing = [len(problem.program_keys[p]) for p in programs[key]]
      searches[key] = key_search.KeySearch(
        key=key,
        subspaces=subspaces,
        programs=tuple(programs[key]),
        num_sharing=sum(sharing) / len(sharing) if sharing else 1.0,
      )
  return State(
    searches=searches,
    turns=tuple(_turns(searches)),
    is_surveying=True,
    current=start,
    overlap_us=None,
    asked=start,
    best=searcher.Best(configuration=start),
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


def ask(state: State) -> problem_lib.Configuration:
  """See `searcher.Searcher`."""
  if state.asked is None:
    raise searcher.nothing_left()
  return state.asked


def done(state: State) -> bool:
  """See `searcher.Searcher`."""
  return state.asked is None


def best(state: State) -> problem_lib.Configuration:
  """See `searcher.Searcher`."""
  return state.best.configuration


def tell(state: State, profile: problem_lib.Profile) -> State:
  """See `searcher.Searcher`."""
  best_so_far = state.best.after(ask(state), profile)
  if best_so_far is not state.best:
    state = dataclasses.replace(
      state, best=best_so_far, best_overlap_us=profile.overlap_us
    )
  if state.is_surveying:
    return _tell_survey(state, profile)
  if state.overlap_us is None:
    return _begin_descents(state)
  if state.turns:
    return _tell_descents(state, profile, state.overlap_us)
  return dataclasses.replace(state, asked=None)


def _tell_survey(state: State, profile: problem_lib.Profile) -> State:
  asked = ask(state)
  searches, configuration = dict(state.searches), dict(asked)
  for key, search in state.searches.items():
    if not search.is_surveyed:
      search = searches[key] = search.surveyed(asked[key], profile)
      configuration[key] = search.setting or state.current[key]
  state = dataclasses.replace(
    state,
    searches=searches,
    asked=configuration,
    is_surveying=not all(s.is_surveyed for s in searches.values()),
  )
  # The best of each key, together: that is known already where it was tried.
  if not state.is_surveying and configuration == state.best.configuration:
    return _begin_descents(state)
  return state


def _begin_descents(state: State) -> State:
  """Goes on from the best configuration so far."""
  overlap_us = state.best_overlap_us
  return _next_descents(
    dataclasses.replace(
      state,
      searches={
        key: search.ready_to_descend(overlap_us)
        for key, search in state.searches.items()
      },
      current=state.best.configuration,
      overlap_us=overlap_us,
    ),
    overlap_us,
  )


def _tell_descents(
  state: State,
  profile: problem_lib.Profile,
  before_us: tuple[float, ...],
) -> State:
  asked = ask(state)
  searches, current = dict(state.searches), dict(state.current)
  overlap_us = list(before_us)
  for key in state.turns[0]:
    search = searches[key]
    if search.descent is None:
      continue
    if search.overlap_us(profile.overlap_us) < search.overlap_us(before_us):
      current[key] = asked[key]
      for program in search.programs:
        overlap_us[program] = profile.overlap_us[program]
    searches[key] = search.descended(profile.overlap_us)
  after_us = tuple(overlap_us)
  return _next_descents(
    dataclasses.replace(
      state, searches=searches, current=current, overlap_us=after_us
    ),
    after_us,
  )


def _next_descents(state: State, overlap_us: tuple[float, ...]) -> State:
  """Asks for the next place of each key whose turn it is; then ends."""
  searches, turns = dict(state.searches), state.turns
  while turns:
    asked = dict(state.current)
    for key in turns[0]:
      search = searches[key].descending(state.current[key], overlap_us)
      searches[key] = search
      if search.descent and search.descent.pending:
        asked[key] = search.descent.pending.setting(search.subspaces)
    if any(searches[key].descent for key in turns[0]):
      return dataclasses.replace(
        state, searches=searches, turns=turns, asked=asked
      )
    turns = turns[1:]
  # What the keys came to in different trials was not tried together.
  is_known = state.current == state.best.configuration
  return dataclasses.replace(
    state,
    searches=searches,
    turns=(),
    asked=None if is_known else state.current,
  )
