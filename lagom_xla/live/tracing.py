# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Traces of a few of the user's own steps, by jax.profiler.

Ending and writing a trace takes as long as several steps, so a thread does it
while training continues. Training waits only until recording has stopped, so
that the trace has no other steps.

A process has only one profiler. If the program uses it, or the trace cannot be
ended or is empty, the search uses predicted costs. A trace ends by itself if
the program stops calling the step; otherwise it would grow forever.
"""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import os
import pathlib
import threading
import time
import weakref

import jax

from lagom_xla import errors
from lagom_xla import processes
from lagom_xla.jax_internals import profiler
from lagom_xla.live import shutdown

_STEP = "lagom_xla"
_FILES = "*.xplane.pb"
# A trace ends after this many seconds without a traced call.
_LONGEST_PAUSE_S = 60.0
# Longest wait of training for the profiler, in seconds. The usual wait is below
# a millisecond, or longer while another trace is being written.
_LONGEST_WAIT_S = 10.0
_POLL_S = 1e-4


class _Session:
  """A trace, from its start until its files are written.

  `is_free` is set unless the session holds the profiler. `problem` says why the
  trace is unusable.
  """

  def __init__(self) -> None:
    self._temporary = processes.TemporaryFolder()
    self._num_traced = 0
    self.problem = ""
    self.is_free = threading.Event()
    self.is_free.set()
    self._is_wanted = True
    self._to_end = threading.Event()
    self._called_s = time.monotonic()
    self._process = os.getpid()
    self._lock = threading.RLock()

  @property
  def folder(self) -> pathlib.Path:
    """The folder of its files."""
    return self._temporary.path

  @property
  def is_on(self) -> bool:
    """Whether calls are traced."""
    return not (self.is_free.is_set() or self._to_end.is_set())

  @property
  def is_ending(self) -> bool:
    """Whether the trace is being ended and written."""
    return self._to_end.is_set() and not self.is_free.is_set()

  def start(self) -> None:
    """Starts the trace; raises a RuntimeError if the profiler is in use."""
    global _latest
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    if _latest is not None:
      _latest.end()  # The session of another step, which keeps its trace.
      if not _latest.is_free.wait(_LONGEST_WAIT_S):
        raise RuntimeError("jax.profiler is still writing another trace.")
    if profiler.is_recording():
      raise RuntimeError("the program is already taking a trace.")
    with self._lock:
      # The thread that ends the trace starts first: threads may be exhausted
      # later.
      shutdown.start("lagom_xla trace", self._end_in_time, self._to_end)
      try:
        profiler.hold(self._give_back)
        with profiler.as_holder():
          jax.profiler.start_trace(self.folder, profiler_options=options)
      except BaseException:
        profiler.let_go()
        self._to_end.set()
        raise
      self.is_free.clear()
      _latest = self

  def step(self) -> contextlib.AbstractContextManager[object]:
    """A context that marks a traced call."""
    if not self.is_on:
      return contextlib.nullcontext()
    self._called_s = time.monotonic()
    self._num_traced += 1
    return jax.profiler.StepTraceAnnotation(_STEP, step_num=self._num_traced)

  def end(self) -> None:
    """Ends the trace in its thread; returns at once."""
    if self._process == os.getpid():  # A fork does not have the profiler.
      self._to_end.set()

  def wait_for_silence(self) -> None:
    """Waits until recording has stopped."""
    until_s = time.monotonic() + _LONGEST_WAIT_S
    while profiler.is_recording() and not self.is_free.wait(_POLL_S):
      if time.monotonic() > until_s:
        self.problem = "jax.profiler did not stop."
        return

  def close(self) -> None:
    """Ends the session and deletes its trace."""
    if self._process != os.getpid():
      return
    self.end()
    with self._lock:
      self._is_wanted = False
      if self.is_free.is_set():
        self._temporary.delete()

  def _give_back(self) -> None:
    """Releases the profiler for the program."""
    if self._process != os.getpid():
      return
    with self._lock:
      if self.is_on:
        self.problem = "the program started its own trace."
    self.end()
    self.is_free.wait(_LONGEST_WAIT_S)

  def _end_in_time(self) -> None:
    """Waits until the trace should end, and ends it."""
    left_s = _LONGEST_PAUSE_S
    while left_s > 0 and not self._to_end.wait(left_s):
      left_s = self._called_s + _LONGEST_PAUSE_S - time.monotonic()
    self._to_end.set()
    with self._lock:  # Not while it starts.
      if self.is_free.is_set():
        return
    problem = ""
    try:
      profiler.stop()
      if not any(it.stat().st_size for it in self.folder.rglob(_FILES)):
        problem = "the trace is empty."
    except Exception as error:  # An error of jaxlib, or a RuntimeError.
      problem = errors.first_line(error)
    with self._lock:
      self.problem = self.problem or problem
      profiler.let_go()
      self.is_free.set()
      if not self._is_wanted:
        self._temporary.delete()
    processes.sweep()  # Training does not wait for this thread.


_latest: _Session | None = None


class Tracer:
  """Takes traces and keeps the latest; warns if that fails."""

  def __init__(self, warn: Callable[[str], None]):
    self._warn = warn
    self._session: _Session | None = None
    self._close: Callable[[], object] | None = None

  @property
  def is_ending(self) -> bool:
    """Whether the latest trace is still being ended and written."""
    return self._session is not None and self._session.is_ending

  def start(self) -> None:
    """Starts a trace, unless one is on."""
    if self._session is not None and self._session.is_on:
      return
    self.drop()
    try:
      session = self._session = _Session()
      # Also runs when this tracer is garbage-collected, and when Python ends.
      self._close = weakref.finalize(self, session.close)
      session.start()
    except Exception as error:  # An error of jaxlib, or a RuntimeError.
      self._fail(errors.first_line(error))

  def step(self) -> contextlib.AbstractContextManager[object]:
    """A context that marks a traced call."""
    if self._session is None:
      return contextlib.nullcontext()
    return self._session.step()

  def end(self) -> None:
    """Ends the trace; may be called even if it did not start."""
    if self._session is not None:
      self._session.end()
      self._session.wait_for_silence()

  def latest(self) -> pathlib.Path | None:
    """The folder of the latest trace; drops a trace that is still ending."""
    session = self._session
    if session is None:
      return None
    problem = session.problem
    if session.is_ending:
      problem = problem or "jax.profiler did not end the trace."
    if problem:
      self._fail(problem)
      return None
    return session.folder

  def drop(self) -> None:
    """Deletes the latest trace."""
    if self._close is not None:
      self._close()
    self._session = self._close = None

  def _fail(self, reason: str) -> None:
    self.drop()
    self._warn(f"cannot trace the step and uses predicted costs: {reason}")
