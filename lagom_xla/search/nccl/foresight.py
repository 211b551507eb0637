# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The survey of one key: the channels with which it is just fast enough.

The loss that untried settings of a key may have is told by what trials showed.
A collective costs a step what is waited for it, and what kernels lose to it:

    loss = exposed + slowdown,   slowdown = rate * (x - exposed)

x is its time; kernels are beside it for as much of that as is not waited for,
and there lose some share, the rate. Trials of one setting tell about others:

*Time.* More channels never make it slower, nor faster than in proportion.
Below the fewest tried its time is taken to go on as between the two fewest,
where links or channels bound it already. Where one number was tried it is taken
to be nearer to the former, because trials begin with many channels; above the
most tried it is taken at the faster bound.

*Exposure* is a matter of its time, whatever the setting: what the kernels
beside it hide does not change. It never grows by more than the time does.

*Rate.* The more SMs are taken the more kernels lose, and in jumps: a kernel
that filled the GPU takes one more wave. So between two numbers of channels that
were tried, in any subspace, the rate is at least that of the lower (below the
lowest, nothing), and expected to be as much above it as if it jumped to that of
the higher anywhere between them alike.

Where nothing is known the least loss that a place may have is optimistic. While
it is below the loss that was found somewhere, the place of these with the least
expected loss is tried next, and is then known. So a jump is found by halving.
The survey looks at channels only, with one chunk size per subspace.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
import dataclasses
import itertools
import math
import operator

from lagom_xla.costs import nccl
from lagom_xla.search.nccl import problem

Subspaces = tuple[problem.Subspace, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
  """A setting as a place: a subspace, and positions on its two axes."""

  subspace: int
  channels_at: int
  chunk_at: int

  def setting(self, subspaces: Subspaces) -> nccl.Setting:
    """The setting there."""
    subspace = subspaces[self.subspace]
    return subspace.setting(self.channels_at, self.chunk_at)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
  """What one trial showed of one key.

  Attributes:
    point: its setting; None for one that is no place in the space, which what
      ran without tuning can be.
    num_channels: of the setting.
    time_us: x.
    exposed_us: waits for it.
    slowdown_us: what kernels lost to it.
    is_hidden: whether hardly anything was waited for it.
  """

  point: Point | None
  num_channels: int
  time_us: float
  exposed_us: float
  slowdown_us: float
  is_hidden: bool

  @property
  def loss_us(self) -> float:
    """What it cost the step."""
    return self.exposed_us + self.slowdown_us

  @property
  def hidden_us(self) -> float:
    """For how long kernels ran beside it."""
    return self.time_us - self.exposed_us


def place_of(subspaces: Subspaces, setting: nccl.Setting) -> Point | None:
  """The place of a setting; None if it is none of the space's."""
  for position, subspace in enumerate(subspaces):
    pair = subspace.algorithm, subspace.protocol
    if pair != (setting.algorithm, setting.protocol):
      continue
    if (
      setting.num_channels in subspace.num_channels
      and setting.chunk_bytes in subspace.chunk_bytes
    ):
      return Point(
        position,
        subspace.num_channels.index(setting.num_channels),
        subspace.chunk_bytes.index(setting.chunk_bytes),
      )
  return None


# A trial alone begins with many channels, where links bound its time.
_FIRST_SLOPE = 0.25


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
  """Channels of a subspace that were not looked at, and what they may lose."""

  subspace: int
  num_channels: int
  least_loss_us: float
  expected_loss_us: float


def places(
  position: int, subspaces: Subspaces, seen: tuple[Seen, ...]
) -> Iterator[Place]:
  """Places of a subspace that were not looked at.

  Of all numbers of channels those are weighed that were tried elsewhere, the
  middles and the ends of the gaps between them, and those that would be just
  enough.
  """
  axis = subspaces[position].num_channels
  here = sorted(
    (s for s in seen if s.point and s.point.subspace == position),
    key=lambda s: s.num_channels,
  )
  tried = sorted({s.num_channels for s in seen if s.num_channels in axis})
  weighed = set(tried)
  for low, high in itertools.pairwise([axis[0] - 1, *tried, axis[-1] + 1]):
    weighed |= {(low + high) // 2, high - 1}
  room_us = max((s.hidden_us for s in seen if not s.is_hidden), default=0.0)
  if room_us:
    weighed.update(
      math.ceil(s.num_channels * s.time_us / room_us) for s in here
    )
  known = _known_rates(seen)
  longest = max(seen, key=lambda s: s.time_us)
  for num_channels in weighed.difference(s.num_channels for s in here):
    if axis[0] <= num_channels <= axis[-1]:
      time_us = _least_time_us(num_channels, here)
      exposed_us = _least_exposed_us(time_us, seen, longest)
      least, expected = (
        exposed_us + rate * (time_us - exposed_us)
        for rate in _rates(num_channels, known)
      )
      yield Place(position, num_channels, least, expected)


def _least_time_us(num_channels: int, here: list[Seen]) -> float:
  """See the module's docstring; `here` is of one subspace, by channels."""
  above = next((s for s in here if s.num_channels > num_channels), None)
  below = next(
    (s for s in reversed(here) if s.num_channels < num_channels), None
  )
  if below is None:
    assert above is not None
    return above.time_us * (above.num_channels / num_channels) ** _slope(here)
  in_proportion_us = below.time_us * below.num_channels / num_channels
  return max(in_proportion_us, above.time_us) if above else in_proportion_us


def _slope(here: list[Seen]) -> float:
  """How time falls at the fewest channels: 0 not at all, 1 in proportion."""
  fewest = here[0]
  more = next((s for s in here if s.num_channels > fewest.num_channels), None)
  if more is None or min(fewest.time_us, more.time_us) <= 0:
    return _FIRST_SLOPE
  fall = math.log(fewest.time_us / more.time_us)
  growth = math.log(more.num_channels / fewest.num_channels)
  return min(max(fall / growth, 0.0), 1.0)


def _least_exposed_us(
  time_us: float, seen: tuple[Seen, ...], longest: Seen
) -> float:
  least_us = 0.0
  for s in seen:
    saved_us = s.time_us - time_us
    exposed_us = s.exposed_us - saved_us if saved_us > 0 else s.exposed_us
    if exposed_us > least_us:
      least_us = exposed_us
  if not longest.is_hidden:
    # Whatever is longer than that is waited for.
    least_us = max(least_us, longest.exposed_us + time_us - longest.time_us)
  return least_us


def _known_rates(seen: tuple[Seen, ...]) -> list[tuple[int, float]]:
  """The least rate at each number of channels that was tried, and at none."""
  known: dict[int, float] = {0: 0.0}
  for s in seen:
    if s.hidden_us > 0:
      rate = s.slowdown_us / s.hidden_us
      known[s.num_channels] = min(rate, known.get(s.num_channels, rate))
  return sorted(known.items())


def _rates(
  num_channels: int, known: list[tuple[int, float]]
) -> tuple[float, float]:
  """The least rate and the expected one; see the module's docstring."""
  at = bisect.bisect_right(known, num_channels, key=operator.itemgetter(0))
  lower, least = known[at - 1]
  if at == len(known):
    return least, least
  higher, rate = known[at]
  jumped = (num_channels - lower) / (higher - lower)
  return least, least + jumped * max(rate - least, 0.0)


def next_point(
  subspaces: Subspaces,
  seen: tuple[Seen, ...],
  *,
  least_gain_us: float,
  max_trials: int,
) -> Point | None:
  """The next place to look at; None when the survey is over.

  Args:
    subspaces: of the key.
    seen: all trials so far, the start's first.
    least_gain_us: what is not worth a trial.
    max_trials: the most that are made, besides the start's.
  """
  best = min(seen, key=lambda s: s.loss_us)
  if len(seen) > max_trials or best.loss_us <= least_gain_us:
    return None
  if all(s.is_hidden for s in seen):
    halved = _halved(subspaces, seen)
    if halved is not None:
      return halved
  # What ran without tuning tells little of its subspace: its chunk is NCCL's.
  looked_at = {s.point.subspace for s in seen[1:] if s.point}
  for position in _order(subspaces):
    if position not in looked_at:
      point = _point(position, subspaces, best.num_channels, seen)
      if point != seen[0].point:
        return point
      looked_at.add(position)
  promising = [
    place
    for position in looked_at
    for place in places(position, subspaces, seen)
    if place.least_loss_us < best.loss_us - least_gain_us
  ]
  if not promising:
    return None
  place = min(
    promising,
    key=lambda p: (p.expected_loss_us, p.num_channels, p.subspace),
  )
  return _point(place.subspace, subspaces, place.num_channels, seen)


def _order(subspaces: Subspaces) -> list[int]:
  """From NCCL's last to its first; LL, which is half flags, at the end."""
  return sorted(
    range(len(subspaces)), key=lambda i: (subspaces[i].protocol == "ll", -i)
  )


def _halved(subspaces: Subspaces, seen: tuple[Seen, ...]) -> Point | None:
  """Half of the fewest channels so far, until something has to wait."""
  fewest = min(seen, key=lambda s: (s.num_channels, s.point is None))
  position = fewest.point.subspace if fewest.point else _order(subspaces)[0]
  point = _point(position, subspaces, fewest.num_channels // 2, seen)
  return None if any(s.point == point for s in seen) else point


def _point(
  position: int,
  subspaces: Subspaces,
  num_channels: int,
  seen: tuple[Seen, ...],
) -> Point:
  """The place with at least so many channels, and a chunk to begin with.

  Small chunks spare the kernels, large ones are faster: the largest where every
  trial was exposed, and the middle one otherwise.
  """
  subspace = subspaces[position]
  last = len(subspace.chunk_bytes) - 1
  channels = subspace.num_channels
  return Point(
    position,
    next(
      (i for i, n in enumerate(channels) if n >= num_channels),
      len(channels) - 1,
    ),
    (last + 1) // 2 if any(s.is_hidden for s in seen) else last,
  )
