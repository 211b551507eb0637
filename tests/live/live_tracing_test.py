# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Traces end in the background and give way to a user's own."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
import itertools
import pathlib
import tempfile
import threading
import time
import types
from typing import Any
import warnings

import jax
from jax._src import profiler
import jax.numpy as jnp
import numpy as np
import pytest

import job
import lagom_xla
from lagom_xla.jax_internals import profiler as profiler_lib
from lagom_xla.jax_internals import store
from lagom_xla.live import tracing
from lagom_xla.profiling import xspace
import live_step

_PROGRAM = "jit__step"


def _step(x: jax.Array) -> jax.Array:
  return jnp.tanh(x @ x)


class _Training:
  """Trains a tuned step and compares each call with jit's."""

  def __init__(self) -> None:
    self._tuned = lagom_xla.tune(jax.jit(_step), cache=False)
    self._x = jnp.full((8, 8), 0.1)
    self._expected = np.asarray(jax.jit(_step)(self._x))

  def call(self) -> None:
    np.testing.assert_array_equal(self._tuned(self._x), self._expected)

  def call_until(self, is_there: Callable[[], bool] | str) -> int:
    """Calls until a condition holds or is reported; counts the calls."""
    for number in live_step.until_it_hangs(self._tuned):
      report = self._tuned.report()
      if is_there in report if isinstance(is_there, str) else is_there():
        return number
      self.call()
    raise AssertionError("It goes on until it hangs.")


def _num_steps(folder: pathlib.Path) -> list[int]:
  """Executions of the step in a trace, on each device."""
  return [
    len(
      {it.execution for it in device.launches if it.program_id == "jit__step"}
    )
    for device in xspace.read(folder).devices
  ]


@pytest.fixture
def proposer() -> Any:
  """The proposer of steps tuned from now on."""
  proposer = live_step.Proposer({})
  with (
    live_step.proposed_by(proposer, waits_for="nothing"),
    warnings.catch_warnings(),
  ):
    warnings.simplefilter("error")
    yield proposer


@dataclasses.dataclass
class _Stop:
  """The end of a trace, which finishes when a test allows it.

  Attributes:
    has_begun: set when recording has stopped.
    may_end: set by the test.
    has_ended: set at the end.
    threads: threads that ended traces.
  """

  has_begun: threading.Event
  may_end: threading.Event
  has_ended: threading.Event
  threads: list[threading.Thread]


@pytest.fixture
def stop(monkeypatch) -> Any:
  """Makes traces end slowly from now on."""
  real = jax.profiler.stop_trace
  made = _Stop(*(threading.Event() for _ in range(3)), threads=[])

  def stop_trace() -> None:
    made.threads.append(threading.current_thread())
    real()
    made.has_begun.set()
    made.may_end.wait(live_step.HANGS_S)
    made.has_ended.set()

  monkeypatch.setattr(jax.profiler, "stop_trace", stop_trace)
  yield made
  made.may_end.set()
  for thread in made.threads:
    thread.join()


def test_training_continues_while_its_trace_ends(proposer, stop):
  training = _Training()
  training.call_until(stop.has_begun.is_set)
  for _ in range(100):
    training.call()
  assert not stop.has_ended.is_set()
  training.call_until("now: profiling")
  assert not proposer.measured
  stop.may_end.set()
  training.call_until("now: watch")
  (measured,) = proposer.measured
  assert measured.trace_dir is not None
  assert threading.current_thread() not in stop.threads


def test_a_trace_contains_only_the_steps_to_be_traced(proposer, monkeypatch):
  real = jax.profiler.stop_trace

  def late() -> None:
    threading.Event().wait(0.05)  # Training would make some calls meanwhile.
    real()

  monkeypatch.setattr(jax.profiler, "stop_trace", late)
  found: list[int] = []

  def read(_: Any) -> None:
    folder = proposer.measured[-1].trace_dir
    assert folder is not None
    found.extend(_num_steps(folder))

  proposer.before = read
  _Training().call_until("now: watch")
  assert found == [3]


def test_a_users_trace_replaces_a_tuning_trace_in_progress(proposer, tmp_path):
  training = _Training()
  training.call_until(jax.profiler.TraceAnnotation.is_enabled)
  with pytest.warns(RuntimeWarning) as warned:
    with jax.profiler.trace(tmp_path):
      for _ in range(3):
        training.call()
    training.call_until("now: watch")
  assert list(tmp_path.rglob("*.xplane.pb"))
  (one,) = warned
  assert "cannot trace the step" in str(one.message)
  assert "the program started its own trace" in str(one.message)
  assert proposer.measured[0].trace_dir is None


def test_a_users_trace_waits_for_a_tuning_trace_that_is_ending(
  proposer, stop, tmp_path
):
  training = _Training()
  training.call_until(stop.has_begun.is_set)
  threading.Timer(0.2, stop.may_end.set).start()
  with jax.profiler.trace(tmp_path):
    assert stop.has_ended.is_set()
    training.call()
  assert list(tmp_path.rglob("*.xplane.pb"))
  training.call_until("now: watch")
  assert proposer.measured[0].trace_dir is not None


def _fails_to_end(patched: pytest.MonkeyPatch) -> None:
  real = jax.profiler.stop_trace

  def fail() -> None:
    real()
    raise OSError("no space left on device")

  patched.setattr(jax.profiler, "stop_trace", fail)


def _is_empty(patched: pytest.MonkeyPatch) -> None:
  patched.setattr(jax.profiler, "start_trace", lambda *_, **__: None)
  patched.setattr(jax.profiler, "stop_trace", lambda: None)


def _has_no_folder(patched: pytest.MonkeyPatch) -> None:
  patched.setattr(tempfile, "tempdir", "/missing")


def _could_not_be_given_back(patched: pytest.MonkeyPatch) -> None:
  patched.setattr(profiler, "_profile_state", types.SimpleNamespace())


@pytest.mark.parametrize(
  ("break_it", "words"),
  [
    (_fails_to_end, "no space left on device"),
    (_is_empty, "the trace is empty"),
    (_has_no_folder, "/missing"),
    (_could_not_be_given_back, "does not know the lock"),
  ],
)
def test_tuning_without_a_trace_predicts_costs_with_one_warning(
  break_it, words, proposer, monkeypatch
):
  break_it(monkeypatch)
  with pytest.warns(RuntimeWarning) as warned:
    _Training().call_until("now: watch")
  (one,) = warned
  assert words in str(one.message)
  assert "uses predicted costs" in str(one.message)
  assert proposer.measured[0].trace_dir is None


def test_a_trace_that_does_not_end_is_abandoned(stop, monkeypatch):
  limits = dataclasses.replace(live_step.LIMITS, trace_s=0.1)
  proposer = live_step.Proposer({})
  with live_step.proposed_by(proposer, limits, waits_for="nothing"):
    with pytest.warns(RuntimeWarning) as warned:
      _Training().call_until("now: watch")
    (one,) = warned
    assert "jax.profiler did not end the trace" in str(one.message)
    assert proposer.measured[0].trace_dir is None
    # Another step does not wait for that trace for long, either.
    with monkeypatch.context() as patched:
      patched.setattr(tracing, "_LONGEST_WAIT_S", 0.2)
      with pytest.warns(RuntimeWarning, match="is still writing another trace"):
        _Training().call_until("now: watch")
  assert not stop.has_ended.is_set()


def test_a_trace_ends_once_the_step_is_no_longer_called(proposer, monkeypatch):
  monkeypatch.setattr(tracing, "_LONGEST_PAUSE_S", 0.2)
  training = _Training()
  training.call_until(jax.profiler.TraceAnnotation.is_enabled)
  while jax.profiler.TraceAnnotation.is_enabled():
    time.sleep(0.01)
  training.call_until("now: watch")
  assert proposer.measured[0].trace_dir is not None


def test_ctrl_c_in_a_traced_call_ends_the_trace(proposer, monkeypatch):
  def interrupt(_: Any) -> None:
    if jax.profiler.TraceAnnotation.is_enabled():
      raise KeyboardInterrupt

  training = _Training()
  with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
    patched.setattr(jax, "block_until_ready", interrupt)
    training.call_until("now: watch")
  assert not jax.profiler.TraceAnnotation.is_enabled()
  training.call_until("now: watch")
  assert proposer.measured[0].trace_dir is not None


@pytest.mark.parametrize("kind", ["trace", "capture"])
def test_a_users_running_trace_stays_complete_and_tuning_predicts(
  kind, proposer, monkeypatch, tmp_path
):
  if kind == "capture":  # As if it began when tuning's trace does.
    monkeypatch.setattr(profiler_lib, "is_recording", lambda: False)
  training = _Training()
  training.call()
  if kind == "trace":
    jax.profiler.start_trace(tmp_path)
    end: Callable[[], None] = jax.profiler.stop_trace
  else:  # As `jax.profiler.start_server` does, unknown to `jax.profiler`.
    capture = profiler._profiler.ProfilerSession(jax.profiler.ProfileOptions())
    end = functools.partial(capture.stop_and_export, str(tmp_path))
  with pytest.warns(RuntimeWarning) as warned:
    num_calls = training.call_until("now: watch")
  end()
  (one,) = warned
  assert "uses predicted costs" in str(one.message)
  assert proposer.measured[0].trace_dir is None
  assert _num_steps(tmp_path) == [num_calls]
  with jax.profiler.trace(tmp_path / "own"):
    training.call()
  assert _num_steps(tmp_path / "own") == [1]


def _in_a_job(number: int, say: job.Say) -> None:
  """Trains in step with the others; the trace ends 40 calls after its start."""
  real, may_end = jax.profiler.stop_trace, threading.Event()

  def stop_trace() -> None:
    real()
    may_end.wait()

  jax.profiler.stop_trace = stop_trace
  everyone = frozenset(range(jax.process_count()))
  store.processes_of = lambda lowered: everyone
  proposer = live_step.Proposer({"faster": live_step.sleeping(0.0)})
  variants = []
  with live_step.proposed_by(proposer, waits_for="nothing"):
    function = live_step.train_step(0.004)
    step: Any = lagom_xla.tune(jax.jit(function, donate_argnums=0), cache=False)
    state = live_step.state()
    for call in itertools.count():
      state, loss = step(state, live_step.batch(call % 50))
      loss.block_until_ready()
      variants.append((step._current.variant, "profiling" in step.report()))
      if sum(is_profile for _, is_profile in variants) == 40:
        may_end.set()
      if "now: watch" in step.report():
        break
  traced = [it.trace_dir is not None for it in proposer.measured]
  say((variants, traced))


def test_all_processes_run_the_same_variants_while_a_trace_ends():
  first, other = job.run(_in_a_job)
  ((ours, traced),) = first.said
  ((theirs, theirs_traced),) = other.said
  assert ours == theirs
  assert ours.count((0, True)) >= 40  # All but 3 while the trace ended.
  assert ours[-1] == (1, False)
  assert (traced, theirs_traced) == ([True], [])
