# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Memory of what became of a step: asked before a search, told at its end.

What an earlier run adopted is proposed first, and measured again: the machine
may have changed in what no key tells. Nothing is searched for where it is
faster again, nor where that run found nothing faster. It stands before any
proposer, in the first process of a job.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
import contextlib
import threading

from absl import logging
import jax

from lagom_xla import errors
from lagom_xla.live import ending
from lagom_xla.live import proposals as proposals_lib
from lagom_xla.live.history import plan_cache
from lagom_xla.live.history import trials as trials_lib
from lagom_xla.live.loop import surroundings

# Seconds between looks at whether anybody still waits for a proposal.
_POLL_S = 0.2


class Memory:
  """What earlier runs know of a step, before those who make proposals for it.

  Args:
    proposer: who is asked for what no run knows.
    lowered: the step as jit lowered it.
    cache: of what earlier runs found; None to know nothing.
    machine: what the step runs on, in full.
  """

  def __init__(
    self,
    proposer: proposals_lib.Proposer,
    lowered: jax.stages.Lowered,
    cache: plan_cache.PlanCache | None,
    machine: str,
  ):
    self._proposer = proposer
    self._lowered = lowered
    self._cache = cache
    self._machine = machine
    self._known_key: str | None = None
    self._is_asked = False
    self._is_searched = False
    # Of the first proposal, once it was tried.
    self._is_adopted = False
    self._is_tried = threading.Event()

  def proposals(
    self, measured: proposals_lib.Measured, stop: threading.Event
  ) -> Generator[proposals_lib.Proposal, None, str | None]:
    """Proposals as of a proposer; in a background thread.

    Returns:
      Why there are no more, where that is more than that all were yielded.

    Raises:
      Exception: Whatever the proposer raises.
    """
    entry = self._recalled()
    if entry is not None:
      self._proposer.plan = entry.plan
      if entry.adopted is None:
        return f"no search, as that of {entry.date} found nothing faster"
      name, payload = entry.name, entry.adopted.encode()
      logging.info("lagom_xla.tune: %s was adopted on %s", name, entry.date)
      yield proposals_lib.Proposal(name=name, payload=payload)
      while not self._is_tried.wait(_POLL_S):
        if stop.is_set():
          return None
      if self._is_adopted:
        return f"no search, as that of {entry.date} came to the same"
      logging.info("lagom_xla.tune: %s is not faster now: searching", name)
    self._is_searched = True
    return (yield from self._proposer.proposals(self._lowered, measured, stop))

  def note(self, trial: surroundings.Trial) -> None:
    """Hears what came of a proposal."""
    self._is_adopted = bool(trial.verdict and trial.verdict.is_adopted)
    self._is_tried.set()

  def keep(
    self, trials: Sequence[surroundings.Trial], *, has_tried_all: bool
  ) -> None:
    """Keeps what came of a search, in a thread.

    Without one that is faster it is kept only if all were tried: a run that
    breaks off knows nothing of the rest.

    Args:
      trials: all of this run.
      has_tried_all: whether the search had come to its end.
    """
    cache = self._cache
    adopted = [it for it in trials if it.verdict and it.verdict.is_adopted]
    is_news = bool(adopted or (has_tried_all and self._is_searched))
    if cache is None or not is_news:
      return
    latest = adopted[-1].proposal if adopted else None
    entry = plan_cache.Entry(
      date=plan_cache.now(),
      adopted=None if latest is None else latest.payload.decode(),
      name="" if latest is None else latest.name,
      verdict=_verdict(trials, adopted),
      plan=self._proposer.plan,
    )
    self._beside(lambda: cache.put(self._key(), entry))

  def forget(self) -> None:
    """Deletes what is known, in a thread: what was adopted has failed."""
    cache = self._cache
    if cache is not None:
      self._beside(lambda: cache.drop(self._key()))

  def _recalled(self) -> plan_cache.Entry | None:
    """What an earlier run found, the first time that it is asked for."""
    if self._cache is None or self._is_asked:
      return None
    self._is_asked = True
    return self._cache.get(self._key())

  def _key(self) -> str:
    if self._known_key is None:
      self._known_key = plan_cache.key(self._lowered, self._machine)
    return self._known_key

  def _beside(self, change: Callable[[], None]) -> None:
    """Changes the cache in a thread: file systems may be slow."""

    def run() -> None:
      try:
        change()
      except Exception as error:  # Of any kind; the next run searches anew.
        logging.warning(
          "lagom_xla.tune cannot keep what it found: %s",
          errors.first_line(error),
        )

    with contextlib.suppress(RuntimeError):  # There can be no more threads.
      ending.start("lagom_xla memory", run, threading.Event())


def _verdict(
  trials: Sequence[surroundings.Trial], adopted: list[surroundings.Trial]
) -> plan_cache.Verdict | None:
  """Of what runs now, over the step as it was; else of the best that lost."""
  if adopted:
    ratio, low, high = trials_lib.combined(adopted)
    num_pairs = sum(it.verdict.num_pairs for it in adopted if it.verdict)
    return plan_cache.Verdict(
      ratio=ratio, low=low, high=high, num_pairs=num_pairs
    )
  verdicts = [it.verdict for it in trials if it.verdict is not None]
  if not verdicts:
    return None
  best = min(verdicts, key=lambda verdict: verdict.ratio)
  return plan_cache.Verdict(
    ratio=best.ratio, low=best.low, high=best.high, num_pairs=best.num_pairs
  )
