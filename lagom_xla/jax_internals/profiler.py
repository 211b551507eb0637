# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Shares JAX's profiler, of which a process has one, with the program.

JAX raises an error if a trace starts during another one, so our traces could
break a program that takes its own. All of `jax.profiler` first takes one lock.
`hold` replaces it by a lock that first ends our trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
import threading
from typing import Any

import jax
from jax._src import profiler

from lagom_xla import errors

# Ends our running trace; None if there is none.
_give_back: Callable[[], None] | None = None
_own = threading.local()


def is_recording() -> bool:
  """Whether any trace is being recorded, ours or the program's."""
  return jax.profiler.TraceAnnotation.is_enabled()


def hold(give_back: Callable[[], None]) -> None:
  """Makes all other uses of `jax.profiler` end our trace first.

  Args:
    give_back: Ends our trace, and returns once the profiler is free, or cannot
      be freed. Called in the other user's thread.

  Raises:
    UnsupportedError: This JAX has other internals, so others would get an
      error.
  """
  global _give_back
  state: Any = getattr(profiler, "_profile_state", None)
  lock: Any = getattr(state, "lock", None)
  if not isinstance(lock, _AskingLock):
    if not hasattr(lock, "acquire"):
      raise errors.UnsupportedError(
        f"This lagom_xla does not know the lock of jax.profiler in JAX"
        f" {jax.__version__}, so its traces could break the program's own."
      )
    state.lock = _AskingLock(lock)
  _give_back = give_back


def let_go() -> None:
  """Lets others use `jax.profiler` directly again."""
  global _give_back
  _give_back = None


@contextlib.contextmanager
def as_holder() -> Iterator[None]:
  """Lets this thread use `jax.profiler` without ending our trace."""
  _own.is_holder = True
  try:
    yield
  finally:
    _own.is_holder = False


def stop() -> None:
  """Ends the caller's trace, and makes JAX write it.

  If a capture of `jax.profiler.start_server` has the profiler, JAX notices only
  now. The profiler is free afterwards, even if this raises.

  Raises:
    Exception: Whatever JAX raises; the trace may not have been written.
  """
  with as_holder():
    try:
      jax.profiler.stop_trace()
    except BaseException:
      state: Any = profiler._profile_state
      with state.lock:
        state.reset()  # JAX does so only on success.
      raise


class _AskingLock:
  """The lock of `jax.profiler`; taking it ends our trace first."""

  def __init__(self, lock: Any):
    self._lock = lock

  def __enter__(self) -> None:
    self._lock.acquire()
    # Read with the lock held: our trace may have begun during the wait.
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
