# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lagom's priority search: Algorithms 1 and 2 of arXiv 2602.20656.

The idea: start every collective with the fewest resources, which slow the
kernels least, and give more only while communication is what takes longest.
Each round raises the collective with the lowest priority metric

    H_j = (Y' - Y) / (x_j - x'_j)                                         (7)

that is, the one that costs the kernels least for the time it gains; Y is the
time of all kernels, x_j that of collective j, primes are after raising j. A
collective is finished when more resources no longer make it faster, or when
communication takes less time than computation, X' < Y'.

The paper leaves open, and this module settles:

*Unknowns.* The paper tunes collectives; here a j is a tuning key
(`problem.py`), and x_j, X and Y are sums over all overlaps that it occurs in.

*Subspaces.* Algorithm, protocol and transport enumerate subspaces (section
3.2). As in AutoCCL's Algorithm 1 they are compared first, by the time of the
collective with all resources, and the fastest is kept. Transport and threads
cannot be set through NCCL's tuner interface.

*First profile.* Algorithm 2, line 1, sets a collective to its minimum when it
is first visited, and line 5 then compares with a time that does not exist. Here
one profile with every collective at its minimum gives all the first x_j; if
already X < Y, that is the optimum (condition 1 of section 3.4).

*The sign and unit of lr.* Line 8 makes lr negative whenever it is used, and
adds a ratio to a number of channels. Here lr = (x_j - x'_j) / x_j, AutoCCL's
BwDelta / Bw, and a knob grows by that share of itself, at least to its next
value: NC <- NC (1 + lr), C <- C (1 + lr). The first lr is 0.01.

*Ends.* A collective that no longer gains keeps its previous setting (Algorithm
1, line 7); one that ends because X' < Y' keeps the new one, which is what made
it so. A gain of exactly nothing counts as no gain. A collective whose knobs are
all at their limit is finished. Algorithm 1 never writes s_j <- s'_j and
Y <- Y'; it must.

*The result.* The paper returns the last configuration. X and Y are sums, so
they cannot see one overlap wait while another has room; hence the result is the
profiled configuration with the least total time Z. What ran before tuning is
profiled first, so the result is never slower than that.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
import dataclasses

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher
from lagom_xla.search.nccl import space

_FIRST_H = 0.01  # Algorithm 1, line 2.
_FIRST_LR = 0.01  # AutoCCL (NSDI 2025), Algorithm 2.

Key = problem_lib.Key


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Collective:
  """Where the search stands with one collective.

  Attributes:
    subspace: the algorithm and protocol that were chosen.
    channels_at: position of NC on its axis.
    chunk_at: position of C on its axis.
    time_us: x_j at this setting.
    h: the priority metric H_j.
    lr: relative gain of the last raise.
  """

  subspace: space.Subspace
  channels_at: int = 0
  chunk_at: int = 0
  time_us: float = float("inf")
  h: float = _FIRST_H
  lr: float = _FIRST_LR

  @property
  def setting(self) -> nccl.Setting:
    return self.subspace.setting(self.channels_at, self.chunk_at)

  @property
  def can_grow(self) -> bool:
    return self.channels_at + 1 < len(
      self.subspace.num_channels
    ) or self.chunk_at + 1 < len(self.subspace.chunk_bytes)

  def grown(self) -> _Collective:
    """With all knobs raised by lr, at least to their next value."""
    return dataclasses.replace(
      self,
      channels_at=_raise(self.subspace.num_channels, self.channels_at, self.lr),
      chunk_at=_raise(self.subspace.chunk_bytes, self.chunk_at, self.lr),
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class State:
  """Between two trials.

  Attributes:
    start: what runs without tuning.
    untried: subspaces that are still to be compared, with their keys.
    fastest: the fastest subspace of each key so far, and its time.
    collectives: the state of each collective; empty while subspaces are
      compared.
    current: the settings of `collectives`.
    waiting: (H, key) of the collectives that are not done, the least first.
    computation_us: Y of the current configuration; None before its profile.
    turn: the key that the pending trial raises.
    asked: the configuration of the pending trial.
    best: the best configuration so far.
  """

  start: problem_lib.Configuration
  untried: tuple[tuple[Key, space.Subspace], ...]
  fastest: Mapping[Key, tuple[space.Subspace, float]]
  collectives: Mapping[Key, _Collective]
  current: problem_lib.Configuration
  waiting: tuple[tuple[float, Key], ...]
  computation_us: float | None
  turn: Key | None
  asked: problem_lib.Configuration | None
  best: searcher.Best


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
  subspaces = {key: space.subspaces(key, cluster) for key in problem.keys}
  return State(
    start=start,
    untried=tuple(
      (key, subspace)
      for key in problem.keys
      for subspace in subspaces[key]
      if len(subspaces[key]) > 1
    ),
    fastest={
      key: (choices[0], float("inf")) for key, choices in subspaces.items()
    },
    collectives={},
    current={},
    waiting=(),
    computation_us=None,
    turn=None,
    asked=start,
    best=searcher.Best(configuration=start),
  )


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
  asked = ask(state)
  state = dataclasses.replace(state, best=state.best.after(asked, profile))
  if asked is state.start:
    return _next_subspace(state)
  if state.untried:
    return _tell_subspace(state, profile)
  if state.computation_us is None:
    return _tell_minimum(state, profile)
  return _tell_raise(state, profile)


def _next_subspace(state: State) -> State:
  """Asks for the next subspace; then for all collectives at their minimum."""
  if state.untried:
    key, subspace = state.untried[0]
    return dataclasses.replace(state, asked={**state.start, key: subspace.most})
  collectives = {
    key: _Collective(subspace=subspace)
    for key, (subspace, _) in state.fastest.items()
  }
  minimum = {key: c.setting for key, c in collectives.items()}
  return dataclasses.replace(
    state, collectives=collectives, current=minimum, asked=minimum
  )


def _tell_subspace(state: State, profile: problem_lib.Profile) -> State:
  key, subspace = state.untried[0]
  time_us = profile.key_us[key]
  fastest = dict(state.fastest)
  if time_us < fastest[key][1]:
    fastest[key] = (subspace, time_us)
  return _next_subspace(
    dataclasses.replace(state, untried=state.untried[1:], fastest=fastest)
  )


def _tell_minimum(state: State, profile: problem_lib.Profile) -> State:
  is_enough = profile.communication_us < profile.computation_us
  collectives = {
    key: dataclasses.replace(collective, time_us=profile.key_us[key])
    for key, collective in state.collectives.items()
  }
  waiting = sorted(
    (collective.h, key)
    for key, collective in collectives.items()
    if collective.can_grow and not is_enough
  )
  return _next_turn(
    dataclasses.replace(
      state,
      collectives=collectives,
      waiting=tuple(waiting),
      computation_us=profile.computation_us,
    )
  )


def _tell_raise(state: State, profile: problem_lib.Profile) -> State:
  """Algorithm 2, lines 5-11, and Algorithm 1, lines 6-9."""
  key = state.turn
  assert key is not None and state.computation_us is not None
  before = state.collectives[key]
  gain_us = before.time_us - profile.key_us[key]
  if gain_us <= 0:
    return _next_turn(state)
  after = dataclasses.replace(
    before.grown(),
    time_us=profile.key_us[key],
    h=(profile.computation_us - state.computation_us) / gain_us,
    lr=gain_us / before.time_us,
  )
  waiting = list(state.waiting)
  is_enough = profile.communication_us < profile.computation_us
  if after.can_grow and not is_enough:
    bisect.insort(waiting, (after.h, key))
  return _next_turn(
    dataclasses.replace(
      state,
      collectives={**state.collectives, key: after},
      current={**state.current, key: after.setting},
      waiting=tuple(waiting),
      computation_us=profile.computation_us,
    )
  )


def _next_turn(state: State) -> State:
  """Algorithm 1, lines 3-5: raises the unfinished collective of least H."""
  if not state.waiting:
    return dataclasses.replace(state, asked=None, turn=None)
  (_, key), *waiting = state.waiting
  raised = state.collectives[key].grown().setting
  return dataclasses.replace(
    state,
    waiting=tuple(waiting),
    asked={**state.current, key: raised},
    turn=key,
  )


def _raise(axis: tuple[int, ...], at: int, lr: float) -> int:
  """The position of the first value at or above axis[at] * (1 + lr)."""
  if at + 1 >= len(axis):
    return at
  wanted = axis[at] * (1 + lr)
  return next(
    (i for i in range(at + 1, len(axis)) if axis[i] >= wanted),
    len(axis) - 1,
  )
