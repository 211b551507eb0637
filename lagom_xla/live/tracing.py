# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trace of a few of the user's own steps, by jax.profiler.

There is one profiler in a process. Where somebody else has it, or the trace
comes out empty, the search goes on with predicted costs.
"""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import pathlib
import shutil
import tempfile
import weakref

import jax

from lagom_xla import errors

_STEP = "lagom_xla"


class Tracer:
  """Takes traces, and keeps the last one.

  Args:
    warn: Called with a sentence where there is no trace.
  """

  def __init__(self, warn: Callable[[str], None]):
    self._warn = warn
    self._folder: pathlib.Path | None = None
    self._delete: Callable[[], object] | None = None
    self._is_on = False
    self._num_traced = 0

  def start(self) -> None:
    """Traces from now on, if it does not yet."""
    if self._is_on:
      return
    self.drop()
    self._num_traced = 0
    self._folder = pathlib.Path(tempfile.mkdtemp(prefix="lagom_xla_trace_"))
    # Also once nobody has this tracer any more, and when Python ends.
    self._delete = weakref.finalize(
      self, shutil.rmtree, self._folder, ignore_errors=True
    )
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    try:
      jax.profiler.start_trace(self._folder, profiler_options=options)
    except Exception as error:  # Of any kind: jaxlib's own, or RuntimeError.
      self._fail(error)
      return
    self._is_on = True

  def step(self) -> contextlib.AbstractContextManager[object]:
    """What marks a traced call."""
    if not self._is_on:
      return contextlib.nullcontext()
    self._num_traced += 1
    return jax.profiler.StepTraceAnnotation(_STEP, step_num=self._num_traced)

  def stop(self) -> None:
    """Ends the trace; to be called even where it did not start."""
    if not self._is_on:
      return
    self._is_on = False
    try:
      jax.profiler.stop_trace()
    except Exception as error:
      self._fail(error)
      return
    if not self._files():
      self._fail(errors.ProfileError("the trace is empty."))

  def latest(self) -> tuple[pathlib.Path | None, int]:
    """The folder of the latest trace, None if there is none, and its steps."""
    if self._folder is None:
      return None, 0
    return self._folder, self._num_traced

  def drop(self) -> None:
    """Deletes the latest trace."""
    if self._delete is not None:
      self._delete()
    self._folder = self._delete = None

  def _files(self) -> list[pathlib.Path]:
    assert self._folder is not None
    found = self._folder.rglob("*.xplane.pb")
    return [path for path in found if path.stat().st_size]

  def _fail(self, error: Exception) -> None:
    self.drop()
    self._warn(
      "could trace no step, and goes on with predicted costs:"
      f" {errors.first_line(error)}"
    )
