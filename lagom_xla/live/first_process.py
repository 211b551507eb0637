# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""First process of a job: the loop's surroundings where it decides."""

from __future__ import annotations

import base64
import json
import time

from lagom_xla.live import proposals
from lagom_xla.live import search_thread
from lagom_xla.live import tracing
from lagom_xla.live.history import memory as memory_lib
from lagom_xla.live.history import trials
from lagom_xla.live.job import board as board_lib
from lagom_xla.live.loop import surroundings


class FirstProcess:
  """What the loop asks for; see `surroundings.Surroundings`."""

  def __init__(
    self,
    proposer: proposals.Proposer,
    memory: memory_lib.Memory,
    board: board_lib.Board,
    diary: trials.Diary,
    tracer: tracing.Tracer,
  ):
    self._proposer = proposer
    self._memory = memory
    self._board = board
    self._diary = diary
    self._tracer = tracer
    self._search: search_thread.Search | None = None

  @property
  def has_profile_build(self) -> bool:
    """See `surroundings.Surroundings`."""
    return self._proposer.has_profile_build

  @property
  def lost_per_core(self) -> float:
    """See `surroundings.Surroundings`."""
    return self._proposer.lost_per_core

  @property
  def is_trace_ending(self) -> bool:
    """See `surroundings.Surroundings`."""
    return self._tracer.is_ending

  def now_s(self) -> float:
    """See `surroundings.Surroundings`."""
    return time.monotonic()

  def begin_search(self, step_s: float, most_s: float | None) -> None:
    """See `surroundings.Surroundings`."""
    self._stop_search()
    trace_dir, num_traced = self._tracer.latest()
    measured = proposals.Measured(
      trace_dir=trace_dir,
      step_s=step_s,
      num_traced=num_traced,
      search_s=most_s,
    )
    self._search = search_thread.Search(self._memory, measured)

  def end_search(self) -> None:
    """See `surroundings.Surroundings`."""
    self._stop_search()
    self._tracer.drop()

  def found(self) -> proposals.Proposal | None:
    """See `surroundings.Surroundings`."""
    if self._search is None:
      raise StopIteration
    return self._search.found()

  def votes(self, number: int) -> dict[int, surroundings.Vote]:
    """See `surroundings.Surroundings`."""
    votes = {}
    for member, value in self._board.entries(f"votes/{number}").items():
      fields = json.loads(value)
      digest = fields["digest"]
      votes[int(member)] = surroundings.Vote(
        digest=None if digest is None else base64.b64decode(digest),
        words=fields["words"],
      )
    return votes

  def note(
    self, trial: surroundings.Trial, most_search_s: float | None
  ) -> None:
    """See `surroundings.Surroundings`."""
    self._diary.note_trial(trial)
    self._memory.note(trial, most_search_s)
    if trial.verdict is not None and trial.verdict.is_adopted:
      # Now: a run may end long before its search does.
      self._memory.keep(self._diary.trials, has_tried_all=False)

  def conclude(self, *, has_tried_all: bool) -> None:
    """See `surroundings.Surroundings`."""
    self._memory.keep(self._diary.trials, has_tried_all=has_tried_all)

  def stay(self, in_use: int) -> None:
    """The loop is over, with this variant; what failed is not to come back."""
    self.end_search()
    if not in_use:
      self._memory.forget()

  def _stop_search(self) -> None:
    if self._search is not None:
      self._search.stop()
      self._search = None
