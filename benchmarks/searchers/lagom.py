# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lagom's priority search: Algorithms 1 and 2 of arXiv 2602.20656.

The idea: start every collective with the fewest resources, which slow the
kernels least, and add more only while communication takes longer than
computation. Each round raises the collective with the lowest priority metric

    H_j = (Y' - Y) / (x_j - x'_j)                                         (7)

that is, the one with the least cost to the kernels for its gain. Y is the time
of all kernels, x_j that of collective j; primes are after raising j. A
collective is finished when more resources no longer make it faster, or when
communication takes less time than computation, X' < Y'.

Choices of this module that the paper leaves open (for lr, see the end):

*Unknowns.* The paper tunes collectives; here j is a tuning key (`problem.py`),
and x_j, X and Y are sums over all overlaps with that key.

*Subspaces.* Algorithm, protocol and transport enumerate subspaces (section
3.2). As in AutoCCL's Algorithm 1, they are compared first, by the time of the
collective with all resources, and the fastest is kept. NCCL's tuner interface
cannot set transport and threads.

*First profile.* Algorithm 2, line 1, sets a collective to its minimum at its
first visit, and line 5 then compares with a time that does not exist. Here, one
profile with every collective at its minimum gives all the first x_j; if already
X < Y, that is the optimum (condition 1 of section 3.4).

*Ends.* A collective that no longer gains keeps its previous setting (Algorithm
1, line 7); one that ends because X' < Y' keeps the new one, which caused it. A
gain of 0 counts as no gain. A collective with all knobs at their limits is
finished. Algorithm 1 never writes s_j <- s'_j and Y <- Y', but it must.

*The result.* The paper returns the last configuration. X and Y are sums, so
they do not show that one overlap waits while another has room. So the result is
the profiled configuration with the least total time Z. The first profile is of
the settings before tuning, so the result is never slower than these.

*Raising.* Algorithm 2, line 8, makes lr negative whenever it is used, and adds
a ratio to a number of channels. Here lr = (x_j - x'_j) / x_j, which is
AutoCCL's BwDelta / Bw, and channels and chunks grow by that share of their
values, at least to the next one: NC <- NC (1 + lr), C <- C (1 + lr).
"""

from __future__ import annotations

import bisect
import dataclasses
import math

from benchmarks.searchers import searcher
from benchmarks.searchers import space as space_lib
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.search.nccl import problem as problem_lib


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
  """The state of the search for one collective.

  Attributes:
    subspace: the chosen algorithm and protocol.
    channels_at: position of NC on its axis.
    chunk_at: position of C on its axis.
    time_us: x_j at this setting.
    h: the priority metric H_j.
    lr: relative gain of the last raise.
  """

  subspace: space_lib.Subspace
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
    """The same with all knobs raised by lr, at least to their next value."""
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lagom(searcher.Searcher):
  """Lagom's search, without randomness.

  Attributes:
    first_h: H of a collective that was not raised yet (Algorithm 1, line 2).
    first_lr: share by which the first raise grows a knob, before a gain is
      known. The paper gives none; this is AutoCCL's (NSDI 2025, Algorithm 2).
  """

  first_h: float = 0.01
  first_lr: float = 0.01

  def trials(
    self,
    problem: problem_lib.Problem,
    cluster: cluster_lib.Cluster,
    start: space_lib.Configuration,
    first: space_lib.Profile,
    seed: int,
  ) -> searcher.Trials:
    """Compares subspaces, then raises from the minimum of the fastest."""
    del first, seed
    collectives: dict[space_lib.Key, Collective] = {}
    for key in problem.keys:
      subspaces = space_lib.subspaces(key, cluster)
      fastest, fastest_us = subspaces[0], math.inf
      for subspace in subspaces if len(subspaces) > 1 else ():
        profile = yield {**start, key: subspace.most}
        if profile.key_us[key] < fastest_us:
          fastest, fastest_us = subspace, profile.key_us[key]
      collectives[key] = Collective(
        subspace=fastest, h=self.first_h, lr=self.first_lr
      )
    current = {key: c.setting for key, c in collectives.items()}
    profile = yield current
    computation_us = profile.computation_us
    # The unfinished collectives, the one with the least H first.
    queue: list[tuple[float, space_lib.Key]] = []
    for key, collective in collectives.items():
      collectives[key] = dataclasses.replace(
        collective, time_us=profile.key_us[key]
      )
      if collective.can_grow and not _is_enough(profile):
        bisect.insort(queue, (collective.h, key))
    while queue:
      # Algorithm 1, lines 3-9, and Algorithm 2, lines 5-11.
      _, key = queue.pop(0)
      before, grown = collectives[key], collectives[key].grown()
      profile = yield {**current, key: grown.setting}
      gain_us = before.time_us - profile.key_us[key]
      if gain_us <= 0:
        continue
      after = dataclasses.replace(
        grown,
        time_us=profile.key_us[key],
        h=(profile.computation_us - computation_us) / gain_us,
        lr=gain_us / before.time_us,
      )
      collectives[key] = after
      current = {**current, key: after.setting}
      computation_us = profile.computation_us
      if after.can_grow and not _is_enough(profile):
        bisect.insort(queue, (after.h, key))


def _is_enough(profile: space_lib.Profile) -> bool:
  """Whether communication takes less time than computation, X' < Y'."""
  return profile.communication_us < profile.computation_us
