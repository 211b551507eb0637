# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Profiler of JAX, which a process has one of: held until others ask for it.

Whoever starts a trace while another one is on gets an error from JAX, also a
program that knows nothing of ours. All of `jax.profiler` takes one lock first.
Once we have held the profiler, that lock has others wait until we let go of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
import threading
from typing import Any

import jax
from jax._src import profiler

from lagom_xla import errors

# What ends the trace of ours that is on; None while there is none.
_give_back: Callable[[], None] | None = None
_own = threading.local()


def is_recording() -> bool:
  """Whether what runs now gets into a trace, whoever takes it."""
  return jax.profiler.TraceAnnotation.is_enabled()


def hold(give_back: Callable[[], None]) -> None:
  """Has others ask before they use `jax.profiler`.

  Args:
    give_back: Ends our trace, and returns once the profiler is free, or will
      not be; called in the thread that asks.

  Raises:
    UnsupportedError: This JAX works in another way, and others would get an
      error.
  """
  global _give_back
  state: Any = getattr(profiler, "_profile_state", None)
  lock: Any = getattr(state, "lock", None)
  if not isinstance(lock, _AskingLock):
    if not hasattr(lock, "acquire"):
      raise errors.UnsupportedError(
        f"This lagom_xla does not know the lock of jax.profiler in JAX"
        f" {jax.__version__}, so the program's own traces could not go first."
      )
    state.lock = _AskingLock(lock)
  _give_back = give_back


def let_go() -> None:
  """Has nobody ask any more."""
  global _give_back
  _give_back = None


@contextlib.contextmanager
def as_holder() -> Iterator[None]:
  """This thread uses `jax.profiler` and asks nobody."""
  _own.is_holder = True
  try:
    yield
  finally:
    _own.is_holder = False


def stop() -> None:
  """Ends the trace that was started by whoever calls, and has it written.

  Where a capture of `jax.profiler.start_server` has the profiler, JAX notices
  only now. It is free for the next trace however this ends.

  Raises:
    Exception: Whatever JAX does; nothing may have been written.
  """
  with as_holder():
    try:
      jax.profiler.stop_trace()
    except BaseException:
      state: Any = profiler._profile_state
      with state.lock:
        state.reset()  # JAX does so only where all went well.
      raise


class _AskingLock:
  """The lock of `jax.profiler`; who wants it asks us for the profiler first."""

  def __init__(self, lock: Any):
    self._lock = lock

  def __enter__(self) -> None:
    self._lock.acquire()
    # Only who has the lock knows: we may have begun while it was waited for.
    give_back = _give_back
    if give_back is None or getattr(_own, "is_holder", False):
      return
    self._lock.release()
    give_back()
    self._lock.acquire()

  def __exit__(self, *unused_error: object) -> None:
    self._lock.release()

  def __getattr__(self, name: str) -> Any:
    return getattr(self._lock, name)
