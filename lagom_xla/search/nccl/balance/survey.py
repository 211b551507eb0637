# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The survey of one key: the channels with which it is just fast enough.

Where nothing is known the least loss that a place may have is optimistic
(`foresight.py`). While it is below the loss that was found somewhere, the place
of these with the least expected loss is tried next, and is then known. So a
jump is found by halving. The survey looks at channels only, with one chunk size
per subspace; `descent.py` refines the best places.
"""

from __future__ import annotations

from lagom_xla.search.nccl.balance import foresight
from lagom_xla.search.nccl.balance.seen import Point
from lagom_xla.search.nccl.balance.seen import Seen
from lagom_xla.search.nccl.balance.seen import Subspaces


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
    for place in foresight.places(position, subspaces, seen)
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
