# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reuse of earlier runs' results, in front of a proposer.

A plan that an earlier run adopted is proposed first. It is measured again,
because the machine may have changed in ways that the cache key does not cover.
If it is still faster, or if the earlier run found nothing faster, there is no
search. Only the first process of a job uses this.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Generator, Sequence
import contextlib
import datetime
import functools
import sys
import threading
from typing import TYPE_CHECKING
import weakref

from absl import logging
import jax

from lagom_xla import errors
from lagom_xla.live import phases
from lagom_xla.live import proposals as proposals_lib
from lagom_xla.live import shutdown

if TYPE_CHECKING:
  from lagom_xla.live import plan_cache

# Seconds between checks whether proposals are still wanted.
_POLL_S = 0.2


class Memory:
  """The results of earlier runs of a step, in front of a proposer.

  `open_kept` opens the cache entry. It is called in a thread, and returns None
  without a cache.
  """

  def __init__(
    self,
    proposer: proposals_lib.Proposer,
    lowered: jax.stages.Lowered,
    open_kept: Callable[[], plan_cache.PlanCache | None],
  ):
    self._proposer = proposer
    self._lowered = lowered
    self._open_kept = functools.cache(open_kept)
    self._is_asked = False
    self._is_searched = False
    # The trial of the first proposal.
    self._tried: phases.Trial | None = None
    self._is_tried = threading.Event()
    # The latest change of each file. Earlier changes that are late are dropped.
    self._lock = threading.Lock()
    self._latest: dict[str, object] = {}
    self._is_at_risk = False
    self._at_end = functools.partial(_end_well, weakref.ref(self))

  def proposals(
    self, measured: proposals_lib.Measured, stop: threading.Event
  ) -> Generator[proposals_lib.Proposal, None, str | None]:
    """Yields proposals like a proposer; runs in a background thread."""
    if not self._is_asked:
      self._is_asked = True
      kept = self._open_kept()
      lost = None if kept is None else kept.risk.get()
      if lost is not None:
        return f"no search: the run of {lost.date} ended when {lost.verdict}"
      entry = None if kept is None else kept.get()
      if entry is not None:
        if entry.adopted is None:
          return f"no search: the run of {entry.date} found nothing faster"
        name, payload = entry.name, entry.adopted.encode()
        logging.info(
          "lagom_xla.tune: trying %s, adopted on %s", name, entry.date
        )
        yield proposals_lib.Proposal(name=name, payload=payload)
        while not self._is_tried.wait(_POLL_S):
          if stop.is_set():
            return None
        tried = self._tried
        if tried is not None and tried.is_adopted:
          return f"no search: the plan of {entry.date} is still faster"
        is_measured = tried is not None and tried.verdict is not None
        why = "is no longer faster" if is_measured else "cannot be measured"
        logging.info("lagom_xla.tune: %s %s; searching again", name, why)
    self._is_searched = True
    return (yield from self._proposer.proposals(self._lowered, measured, stop))

  def note(self, trial: phases.Trial) -> None:
    """Records a trial's result."""
    self._tried = trial
    self._is_tried.set()

  def keep(
    self, trials: Sequence[phases.Trial], *, has_tried_all: bool
  ) -> None:
    """Saves the result of the search so far, in a thread.

    Saves "nothing is faster" only after all proposals were tried.
    """
    tried = tuple(trials)
    if any(it.is_adopted for it in tried) or (
      has_tried_all and self._is_searched
    ):
      self._beside("entry", lambda kept: kept.put(_entry(tried)))

  def forget(self) -> None:
    """Deletes the saved plan, in a thread, because it failed."""
    self._beside("entry", lambda kept: kept.drop())

  def note_risk(self, name: str) -> None:
    """Records that a proposal is about to run for the first time.

    If it ends this run, the next run does not search.
    """

    def put(kept: plan_cache.PlanCache) -> None:
      from lagom_xla.live import plan_cache

      verdict = f"{name} ran for the first time"
      kept.risk.put(
        plan_cache.Entry(date=_now(), adopted=None, name=name, verdict=verdict)
      )

    self._is_at_risk = True
    atexit.register(self._at_end)
    self._beside("risk", put)

  def note_survival(self) -> None:
    """Records that the run survived the proposal."""
    if self._is_at_risk:
      self._is_at_risk = False
      atexit.unregister(self._at_end)
      self._beside("risk", lambda kept: kept.risk.drop())

  def end_well(self) -> None:
    """Records that the program ends normally."""
    kept = self._open_kept()
    if kept is not None:
      kept.risk.drop()

  def _beside(
    self, what: str, change: Callable[[plan_cache.PlanCache], None]
  ) -> None:
    """Changes a file in a thread, because file systems may be slow."""
    self._latest[what] = change

    def run() -> None:
      try:
        kept = self._open_kept()
        with self._lock:
          if kept is not None and self._latest[what] is change:
            change(kept)
      except Exception as error:  # The next run searches again.
        logging.warning(
          "lagom_xla.tune cannot save what it found: %s",
          errors.first_line(error),
        )

    with contextlib.suppress(RuntimeError):  # No more threads can start.
      shutdown.start("lagom_xla memory", run, threading.Event())


def _entry(trials: Sequence[phases.Trial]) -> plan_cache.Entry:
  """The cache entry for the trials of a run."""
  from lagom_xla.live import plan_cache

  adopted = [it for it in trials if it.is_adopted]
  latest = adopted[-1].proposal if adopted else None
  return plan_cache.Entry(
    date=_now(),
    adopted=None if latest is None else latest.payload.decode(),
    name="" if latest is None else latest.name,
    verdict=(adopted or trials)[-1].words if trials else "",
  )


def _end_well(ref: weakref.ref[Memory]) -> None:
  """Calls `end_well` at exit. Neither a hang nor an abort gets here."""
  memory = ref()
  if memory is not None and getattr(sys, "last_type", None) is None:
    memory.end_well()


def _now() -> str:
  return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
