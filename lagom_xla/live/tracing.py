# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trace of a few of the user's own steps, by jax.profiler.

There is one profiler in a process. Where somebody else has it, or the trace
comes out empty, the search goes on with predicted costs. A trace that nobody
ends, as the program calls the step no more, ends by itself: it would grow, and
the user could not take one.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
import contextlib
import os
import pathlib
import shutil
import tempfile
import threading
import weakref

import jax

from lagom_xla import errors

_STEP = "lagom_xla"
# Seconds without a traced call, after which a trace ends.
_LONGEST_PAUSE_S = 60.0


class _Session:
  """A trace, from its start to the end of its files."""

  def __init__(self) -> None:
    self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lagom_xla_trace_"))
    self.num_traced = 0
    self.is_on = False
    self._process = os.getpid()
    self._timer: threading.Timer | None = None
    self._lock = threading.RLock()

  def start(self) -> None:
    """Starts it; raises what JAX does where somebody else has the profiler."""
    global _running
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    if _running is not None:
      _running.stop()  # Of another step of this program, which keeps its trace.
    jax.profiler.start_trace(self.folder, profiler_options=options)
    self.is_on = True
    _running = self

  def step(self) -> contextlib.AbstractContextManager[object]:
    """What marks a traced call."""
    with self._lock:
      if not self.is_on:
        return contextlib.nullcontext()
      self._cancel()
      self._timer = threading.Timer(_LONGEST_PAUSE_S, self.stop)
      self._timer.daemon = True
      with contextlib.suppress(RuntimeError):  # There can be no more threads.
        self._timer.start()
      self.num_traced += 1
    return jax.profiler.StepTraceAnnotation(_STEP, step_num=self.num_traced)

  def stop(self) -> None:
    """Ends it, if nobody has; what was traced is kept."""
    global _running
    if self._process != os.getpid():
      return  # A fork has neither the profiler nor the lock's owner.
    with self._lock:
      self._cancel()
      if not self.is_on:
        return
      self.is_on = False
      if _running is self:
        _running = None
      with contextlib.suppress(Exception):  # Somebody else has ended it.
        jax.profiler.stop_trace()

  def close(self) -> None:
    """Ends it, and deletes what was traced."""
    if self._process == os.getpid():
      self.stop()
      shutil.rmtree(self.folder, ignore_errors=True)

  def is_empty(self) -> bool:
    """Whether nothing was written."""
    found = self.folder.rglob("*.xplane.pb")
    return not any(path.stat().st_size for path in found)

  def _cancel(self) -> None:
    if self._timer is not None:
      self._timer.cancel()
      self._timer = None


_running: _Session | None = None


@atexit.register
def _end() -> None:
  """Ends a trace that is on, before JAX lets go of its devices."""
  if _running is not None:
    _running.close()


class Tracer:
  """Takes traces, and keeps the last one.

  Args:
    warn: Called with a sentence where there is no trace.
  """

  def __init__(self, warn: Callable[[str], None]):
    self._warn = warn
    self._session: _Session | None = None
    self._close: Callable[[], object] | None = None

  def start(self) -> None:
    """Traces from now on, if it does not yet."""
    if self._session is not None and self._session.is_on:
      return
    self.drop()
    try:
      session = self._session = _Session()
      # Also once nobody has this tracer any more, and when Python ends.
      self._close = weakref.finalize(self, session.close)
      session.start()
    except Exception as error:  # Of any kind: jaxlib's own, or RuntimeError.
      self._fail(errors.first_line(error))

  def step(self) -> contextlib.AbstractContextManager[object]:
    """What marks a traced call."""
    if self._session is None:
      return contextlib.nullcontext()
    return self._session.step()

  def stop(self) -> None:
    """Ends the trace; to be called even where it did not start."""
    if self._session is None:
      return
    self._session.stop()
    if self._session.is_empty():
      self._fail("the trace is empty.")

  def latest(self) -> tuple[pathlib.Path | None, int]:
    """The folder of the latest trace, None if there is none, and its steps."""
    if self._session is None:
      return None, 0
    return self._session.folder, self._session.num_traced

  def drop(self) -> None:
    """Deletes the latest trace."""
    if self._close is not None:
      self._close()
    self._session = self._close = None

  def _fail(self, reason: str) -> None:
    self.drop()
    self._warn(
      f"could trace no step, and goes on with predicted costs: {reason}"
    )
