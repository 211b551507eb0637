# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tuned step: a live one with proposers, boards and diaries for its loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
import functools
import pathlib
import time
from typing import TYPE_CHECKING, Any

import jax

from lagom_xla import errors
from lagom_xla.compile.lowering import nnx_step
from lagom_xla.dispatch import dispatch
from lagom_xla.dispatch import fallback
from lagom_xla.jax_internals import store
from lagom_xla.live import composer as composer_lib
from lagom_xla.live import platforms
from lagom_xla.live import refs
from lagom_xla.live import refusal
from lagom_xla.live.calls import signature as signature_lib
from lagom_xla.live.calls import step as step_lib
from lagom_xla.live.history import memory as memory_lib
from lagom_xla.live.history import trials
from lagom_xla.live.job import board as board_lib
from lagom_xla.live.job import processes

if TYPE_CHECKING:  # Imported by threads, beside training.
  from lagom_xla import cluster as cluster_lib
  from lagom_xla.live.history import kept as kept_lib
  from lagom_xla.live.history import plan_cache

# What new steps are given; tests are less patient.
PATIENCE = composer_lib.Patience()


def step(
  jitted_step: Any,
  choose: dispatch.Choose,
  *,
  cluster: cluster_lib.Cluster | None,
  searcher: str | None,
  log: pathlib.Path | None,
  cache: str | pathlib.Path | bool,
  remake: Callable[[], Any],
  by: str,
) -> Any:
  """A function like a jitted step, which is tuned as it is called.

  Args:
    jitted_step: What `jax.jit` or Flax's `nnx.jit` returned.
    choose: Chooses on predictions, where CPU devices stand for a cluster's.
    cluster: What it runs on; None for what the live devices make up.
    searcher: Of NCCL settings; None for the default one.
    log: Where trials are written; None for nowhere.
    cache: See `plan_cache.in_folder`.
    remake: Makes the same again, in the process that unpickles it.
    by: What warnings name as the one who tunes, called by the user.

  Raises:
    TypeError: The step is not jitted.
  """
  diaries: list[trials.Diary] = []
  name = fallback.name(jitted_step)

  @functools.cache
  def open_cache() -> plan_cache.PlanCache | None:
    from lagom_xla.live.history import plan_cache

    return plan_cache.in_folder(cache)

  def open_kept(lowered: jax.stages.Lowered) -> kept_lib.Kept | None:
    from lagom_xla.live.history import kept as kept_lib

    opened = open_cache()
    if opened is None:
      return None
    machine = platforms.machine_of(lowered, cluster)
    return kept_lib.Kept(opened, lowered, machine)

  def report() -> str:
    """What tuning came to, the verdict first; most called signatures first."""
    if not diaries:
      return f"{name}: as jit runs it, nothing is measured"
    by_calls = sorted(diaries, key=lambda it: it.num_calls, reverse=True)
    return "\n".join(diary.report() for diary in by_calls)

  def make(warner: fallback.Warner) -> Any:

    def begin(
      jitted: dispatch.Jitted, lowered: jax.stages.Lowered
    ) -> signature_lib.Signature:
      members = store.processes_of(lowered)
      try:
        check_s = time.thread_time()
        processes.check(members)  # Waits as the first collective would.
        check_s = time.thread_time() - check_s
        if cluster is not None and platforms.platform_of(lowered) == "cpu":
          chosen = fallback.or_as_it_was(choose, warner)(lowered)
          return signature_lib.fixed(jitted, chosen)
        begin_s = time.perf_counter()
        board = board_lib.next_board(name, members, touch_s=PATIENCE.touch_s)
        with _refusing(board):
          refs.check_none(lowered)
          proposer = platforms.proposer_of(lowered, cluster, searcher=searcher)
          memory = memory_lib.Memory(
            proposer, lowered, lambda: open_kept(lowered)
          )
      except errors.SettingsDifferError:
        raise  # The step as it was would wait forever.
      except Exception as error:  # The step must run, whatever went wrong.
        warner.leaves(fallback.describe(error))
        return signature_lib.fixed(jitted, None)
      diary = trials.Diary(name=name, path=log)
      composer = composer_lib.Composer(
        lowered, proposer, memory, board, diary, PATIENCE
      )
      signature = signature_lib.live(jitted, composer)
      # Not if Ctrl-C ended the wait for the first script: then all of it is
      # done again at the next call, and the others are still there.
      board_lib.take(board)
      diaries.append(diary)
      if diary.loop is not None:
        stall_s = check_s + time.perf_counter() - begin_s
        diary.loop.account.overhead.stall(stall_s)
      return signature

    def live(function: Any) -> step_lib.LiveStep:
      return step_lib.LiveStep(function, begin, warner, report, remake)

    if nnx_step.is_nnx(jitted_step):
      return nnx_step.with_jitted(jitted_step, live)
    return live(jitted_step)

  made = fallback.supported(jitted_step, make, by=by)
  made.report = report
  made._repr_html_ = lambda: trials.as_html(report())
  return made


@contextlib.contextmanager
def _refusing(board: board_lib.Board) -> Iterator[None]:
  """Has the other processes not wait for this one if it raises."""
  try:
    yield
  except Exception as error:
    words = fallback.describe(error)
    refusal.post(board, 1, refusal.by(board, words, in_use=0))
    board_lib.take(board)
    raise
