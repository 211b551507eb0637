# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The loss that untried settings of a key may have, by what trials showed.

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
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
import dataclasses
import itertools
import math
import operator

from lagom_xla.search.nccl.balance.seen import Seen
from lagom_xla.search.nccl.balance.seen import Subspaces

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
