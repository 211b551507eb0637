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

The paper leaves open, and this module settles (`Collective`: how much lr is):

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

*Ends.* A collective that no longer gains keeps its previous setting (Algorithm
1, line 7); one that ends because X' < Y' keeps the new one, which is what made
it so. A gain of exactly nothing counts as no gain. A collective whose knobs are
all at their limit is finished. Algorithm 1 never writes s_j <- s'_j and
Y <- Y'; it must.

*The result.* The paper returns the last configuration. X and Y are sums, so
they cannot see one overlap wait while another has room; hence the result is the
profiled configuration with the least total time Z. What ran before tuning is
profiled first, so the result is never slower than that.

Raising of a collective in Lagom's search: more channels and larger chunks.

Algorithm 2, line 8, of arXiv 2602.20656 makes lr negative whenever it is used,
and adds a ratio to a number of channels. Here lr = (x_j - x'_j) / x_j, which is
AutoCCL's BwDelta / Bw, and a knob grows by that share of itself, at least to
its next value: NC <- NC (1 + lr), C <- C (1 + lr).
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
import dataclasses
import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.search.nccl import problem
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
  """Where the search stands with one collective.

  Attributes:
    subspace: the algorithm and protocol that were chosen.
    channels_at: position of NC on its axis.
    chunk_at: position of C on its axis.
    time_us: x_j at this setting.
    h: the priority metric H_j.
    lr: relative gain of the last raise.
  """

  subspace: problem.Subspace
  channels_at: int = 0
  chunk_at: int = 0
  time_us: float = math.inf
  h: float
  lr: float

  @property
  def setting(self) -> nccl.Setting:
    """Its NCCL setting."""
    return self.subspace.setting(self.channels_at, self.chunk_at)

  @property
  def can_grow(self) -> bool:
    """Whether a knob is below its limit."""
    return self.channels_at + 1 < len(
      self.subspace.num_channels
    ) or self.chunk_at + 1 < len(self.subspace.chunk_bytes)

  def grown(self) -> Collective:
    """With all knobs raised by lr, at least to their next value."""
    return dataclasses.replace(
      self,
      channels_at=_raise(self.subspace.num_channels, self.channels_at, self.lr),
      chunk_at=_raise(self.subspace.chunk_bytes, self.chunk_at, self.lr),
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


Key = problem_lib.Key


# (H, key) of collectives.
Queue = tuple[tuple[float, Key], ...]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
  """What Lagom keeps between two trials.

  Attributes:
    untried: subspaces that are still to be compared, with their keys.
    fastest: the fastest subspace of each key so far, and its time.
    collectives: the state of each collective; empty while subspaces are
      compared.
    current: the settings of `collectives`.
    queue: the collectives that are not finished, the next to raise first.
    computation_us: Y of the current settings; None before their profile.
    turn: the key that the pending trial raises.
  """

  untried: tuple[tuple[Key, problem_lib.Subspace], ...]
  fastest: Mapping[Key, tuple[problem_lib.Subspace, float]]
  collectives: Mapping[Key, Collective]
  current: problem_lib.Configuration
  queue: Queue
  computation_us: float | None
  turn: Key | None


_State = searcher.State[Progress]
_Next = tuple[Progress, problem_lib.Configuration | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lagom(searcher.Searcher[Progress]):
  """Lagom's search. It draws nothing at random.

  Attributes:
    first_h: H of a collective that was not raised yet (Algorithm 1, line 2).
    first_lr: share by which the first raise grows a knob, before a gain is
      known; the paper gives none, this is AutoCCL's (NSDI 2025, Algorithm 2).
  """

  first_h: float = 0.01
  first_lr: float = 0.01

  def _subspaces(
    self, key: Key, start: nccl.Setting, cluster: cluster_lib.Cluster
  ) -> tuple[problem_lib.Subspace, ...]:
    """What is searched of a key, which starts from this setting."""
    del start
    return problem_lib.subspaces(key, cluster)

  def _enqueue(self, queue: Queue, h: float, key: Key) -> Queue:
    """The queue with one more: the key of the least H is raised next."""
    waiting = list(queue)
    bisect.insort(waiting, (h, key))
    return tuple(waiting)

  def _begin(
    self,
    problem: problem_lib.Problem,
    cluster: cluster_lib.Cluster,
    start: problem_lib.Configuration,
    seed: int,
  ) -> Progress:
    del seed
    subspaces = {
      key: self._subspaces(key, start[key], cluster) for key in problem.keys
    }
    return Progress(
      untried=tuple(
        (key, subspace)
        for key in problem.keys
        for subspace in subspaces[key]
        if len(subspaces[key]) > 1
      ),
      fastest={
        key: (choices[0], math.inf) for key, choices in subspaces.items()
      },
      collectives={},
      current={},
      queue=(),
      computation_us=None,
      turn=None,
    )

  def _next(self, state: _State, profile: problem_lib.Profile) -> _Next:
    progress = state.progress
    if state.num_trials == 1:  # The start's.
      return self._next_subspace(state, progress)
    if progress.untried:
      return self._next_subspace(state, _compared(progress, profile))
    if progress.computation_us is None:
      return self._after_minimum(progress, profile)
    return self._after_raise(progress, profile, progress.computation_us)

  def _next_subspace(self, state: _State, progress: Progress) -> _Next:
    """Asks for the next subspace; then for all collectives at their minimum."""
    if progress.untried:
      key, subspace = progress.untried[0]
      return progress, {**state.start, key: subspace.most}
    collectives = {
      key: Collective(subspace=subspace, h=self.first_h, lr=self.first_lr)
      for key, (subspace, _) in progress.fastest.items()
    }
    minimum = {key: c.setting for key, c in collectives.items()}
    progress = dataclasses.replace(
      progress, collectives=collectives, current=minimum
    )
    return progress, minimum

  def _after_minimum(
    self, progress: Progress, profile: problem_lib.Profile
  ) -> _Next:
    is_enough = profile.communication_us < profile.computation_us
    collectives = {
      key: dataclasses.replace(collective, time_us=profile.key_us[key])
      for key, collective in progress.collectives.items()
    }
    queue: Queue = ()
    for key, collective in collectives.items():
      if collective.can_grow and not is_enough:
        queue = self._enqueue(queue, collective.h, key)
    return _next_turn(
      dataclasses.replace(
        progress,
        collectives=collectives,
        queue=queue,
        computation_us=profile.computation_us,
      )
    )

  def _after_raise(
    self,
    progress: Progress,
    profile: problem_lib.Profile,
    computation_us: float,
  ) -> _Next:
    """Algorithm 2, lines 5-11, and Algorithm 1, lines 6-9."""
    key = progress.turn
    assert key is not None
    before = progress.collectives[key]
    gain_us = before.time_us - profile.key_us[key]
    if gain_us <= 0:
      return _next_turn(progress)
    after = dataclasses.replace(
      before.grown(),
      time_us=profile.key_us[key],
      h=(profile.computation_us - computation_us) / gain_us,
      lr=gain_us / before.time_us,
    )
    queue = progress.queue
    is_enough = profile.communication_us < profile.computation_us
    if after.can_grow and not is_enough:
      queue = self._enqueue(queue, after.h, key)
    return _next_turn(
      dataclasses.replace(
        progress,
        collectives={**progress.collectives, key: after},
        current={**progress.current, key: after.setting},
        queue=queue,
        computation_us=profile.computation_us,
      )
    )


def _compared(progress: Progress, profile: problem_lib.Profile) -> Progress:
  """After the trial of the first of the untried subspaces."""
  key, subspace = progress.untried[0]
  time_us = profile.key_us[key]
  fastest = dict(progress.fastest)
  if time_us < fastest[key][1]:
    fastest[key] = (subspace, time_us)
  return dataclasses.replace(
    progress, untried=progress.untried[1:], fastest=fastest
  )


def _next_turn(progress: Progress) -> _Next:
  """Algorithm 1, lines 3-5: raises the unfinished collective of least H."""
  if not progress.queue:
    return dataclasses.replace(progress, turn=None), None
  (_, key), *queue = progress.queue
  raised = progress.collectives[key].grown().setting
  return (
    dataclasses.replace(progress, queue=tuple(queue), turn=key),
    {**progress.current, key: raised},
  )
