# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Turns of signatures: when those that are done share a lane, and for how long.

A call of another signature than the last one costs Python, about 100 us. Once
all are only watched and go on taking turns, they share a lane in which nothing
is counted. There no drift shows, so they leave it for as long as each takes for
a window, and rest for a hundred times as many calls as they took turns: so
turns cost about 1 us a call.
"""

from __future__ import annotations

from collections.abc import Iterable
import math

from lagom_xla.live.calls import player as player_lib

# Turns of signatures that are done, after which they rest for the first time.
_MAX_TURNS = 16
# Calls at rest for each turn.
REST_CALLS = 100


class Turns:
  """Counts turns, and says when there have been enough."""

  def __init__(self) -> None:
    self.restart()

  def restart(self) -> None:
    """Another signature has come, or what was is no more."""
    self._num_turns = 0
    # Of the signatures that took turns since the last rest: windows until then.
    self._num_before: dict[player_lib.Player, int] = {}
    self._has_rested = False

  def wake(self) -> None:
    """The rest is over."""
    self.restart()
    self._has_rested = True

  def take(
    self, current: player_lib.Player, players: Iterable[player_lib.Player]
  ) -> float | None:
    """Takes note of a turn.

    Args:
      current: Whose turn it is.
      players: All.

    Returns:
      How many calls may go by at rest; infinitely many where none is watched.
      None to go on.
    """
    if not all(_is_done(it) for it in players):
      self.restart()
      return None
    self._num_turns += 1
    self._num_before.setdefault(current, current.num_scripts)
    if self._num_turns <= _MAX_TURNS or self._lacks_windows():
      return None
    if all(it.segment is None for it in self._num_before):
      return math.inf
    return REST_CALLS * self._num_turns

  def _lacks_windows(self) -> bool:
    """Whether one that is watched has yet to end a whole window."""
    return self._has_rested and any(
      it.segment is not None and it.num_scripts == before
      for it, before in self._num_before.items()
    )


def _is_done(player: player_lib.Player) -> bool:
  return player.segment is None or player.segment.is_watched
