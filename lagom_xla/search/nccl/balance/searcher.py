# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The balance searcher: survey and descent of all keys of a problem.

Lagom (`lagom.py`) sees of the kernels only Y, the sum of their times, and grows
all knobs of one collective at a time from the least. A profile shows more: what
was waited for each key, and what kernels lost to it. So each key can be judged
by itself, and all keys can move in every trial:

*Survey.* From NCCL's own choice on, each key looks for the channels with which
it is just fast enough, in all subspaces at once (`survey.py`). Keys do not wait
for each other; one that is done keeps its best setting meanwhile.

*Descent.* Then each key goes downhill from the best place of each of its best
subspaces (`descent.py`), by the time of all its overlaps. This sees what the
survey does not: chunk sizes, and one key holding up another. Keys that share an
overlap take turns, the others go at the same time.

It uses nothing but profiles and the space, so it works on measured steps, too.
Keys that share overlaps take 10 to 50 trials each, others at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import dataclasses

from lagom_xla import cluster as cluster_lib
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib
from lagom_xla.search.nccl import trial as trial_lib
from lagom_xla.search.nccl.balance import key_search

Key = problem_lib.Key
_Searches = Mapping[Key, key_search.KeySearch]


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
    searches = key_search.of_problem(problem, cluster)
    return Progress(
      searches=searches,
      turns=tuple(_turns(searches)),
      is_surveying=True,
      current=start,
      overlap_us=None,
    )

  def _next(self, state: _State, profile: trial_lib.Profile) -> _Next:
    progress = state.progress
    if progress.is_surveying:
      return self._after_survey(state, profile)
    if progress.overlap_us is None:
      return self._begin_descents(state, progress)
    if progress.turns:
      return self._after_descents(state, profile, progress.overlap_us)
    return progress, None

  def _after_survey(self, state: _State, profile: trial_lib.Profile) -> _Next:
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
    profile: trial_lib.Profile,
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
