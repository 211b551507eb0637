# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A signal ends training, and everything others wait for, as under jit."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
import functools
import os
import pathlib
import signal
import subprocess
import sys
import threading
from typing import Any
from unittest import mock

import jax
from jax._src import api
import numpy as np
import pytest

import job
import lagom_xla
from lagom_xla.live import coordinator as coordinator_lib
from lagom_xla.live import shutdown
import live_job
import live_step
import signalled

_STATES = (
  "baseline",
  "profiling",
  "searching",
  "compiling",
  "measuring",
  "watching",
)
# Nothing handles SIGTERM, which at most leaves a search running.
_MEETINGS = [(it, signal.SIGINT) for it in _STATES]
_MEETINGS.append(("searching", signal.SIGTERM))


@pytest.fixture(scope="module")
def programs() -> Iterator[signalled.Programs]:
  with signalled.programs() as programs:
    yield programs


@pytest.fixture(scope="module")
def under_jit(programs, tmp_path_factory) -> signalled.Ended:
  """The end of a program that trains under plain jit, by Ctrl-C."""
  folder = tmp_path_factory.mktemp("jit")
  return programs.met(signalled.JIT, signal.SIGINT, folder)


@pytest.mark.parametrize(("state", "number"), _MEETINGS)
def test_a_signal_ends_a_tuned_program_as_under_jit(
  state, number, under_jit, programs, tmp_path
):
  ended = programs.met(state, number, tmp_path)
  assert ended.statuses == [-number], ended.errors
  raised = _raised(under_jit.errors) if number == signal.SIGINT else []
  assert _raised(ended.errors) == raised, ended.errors
  # A search that is not killed runs to its end and exits with 0. The process
  # that queries XLA's flags exits with 0 once its callers are gone.
  if number == signal.SIGINT:
    assert 0 not in ended.orphans
  else:
    assert any(ended.orphans), ended.orphans
  for num in (signalled.num_trials, signalled.num_plans):
    assert num(tmp_path) == (state == "watching")
  if number == signal.SIGINT:
    assert not list((tmp_path / signalled.TEMPORARY).iterdir())


def test_ctrl_c_ends_all_processes_of_a_job(programs, tmp_path):
  ended = programs.met("profiling", signal.SIGINT, tmp_path, num_processes=2)
  assert ended.statuses == [-signal.SIGINT] * 2, ended.errors
  for errors in ended.errors:
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
  assert not list((tmp_path / signalled.TEMPORARY).iterdir())


def test_the_next_run_deletes_temporary_files_that_a_signal_left(
  programs, tmp_path
):
  temporary = tmp_path / signalled.TEMPORARY
  programs.met("profiling", signal.SIGTERM, tmp_path)
  assert list(temporary.iterdir())
  programs.met("watching", signal.SIGINT, tmp_path)
  assert not list(temporary.iterdir())


def _raised(errors: list[str]) -> list[str]:
  """Heads and errors of tracebacks in stderr, without their lines."""
  (one,) = errors
  return [line for line in one.splitlines() if not line.startswith(" ")]


_COMPILING = """
import atexit, threading
import jax, jax.numpy as jnp
atexit.register(lambda: print("goodbye"))
from lagom_xla.live import shutdown
atexit.register(lambda: print("farewell"))

def long(x):
  for i in range(100):
    x = jnp.sin(x @ x) + jnp.cumsum(x, 0)[::-1] * i
  return x

lowered = jax.jit(long).lower(jnp.ones((64, 64)))
begins = threading.Event()

def compile_():
  begins.set()
  lowered.compile()

shutdown._LONGEST_S = 1e6
shutdown.start("compile", compile_, threading.Event())
begins.wait()
raise KeyboardInterrupt
"""


def test_ctrl_c_ends_a_program_during_a_background_compile():
  done = subprocess.run(
    (sys.executable, "-c", _COMPILING),
    capture_output=True,
    text=True,
    env={**os.environ, "JAX_PLATFORMS": "cpu"},
  )
  assert done.returncode == -signal.SIGINT, done.stderr
  assert done.stdout.split() == ["farewell", "goodbye"]


def test_join_waits_for_a_thread_whose_start_ctrl_c_interrupted():
  begins, goes_on = threading.Event(), threading.Event()
  start = threading.Thread.start

  def interrupted(thread: threading.Thread) -> None:
    start(thread)
    begins.wait()
    raise KeyboardInterrupt

  def work() -> None:
    begins.set()
    goes_on.wait()

  # Threads of other tests' steps are not waited for.
  with mock.patch.dict(shutdown._running, clear=True):
    with (
      mock.patch.object(threading.Thread, "start", interrupted),
      pytest.raises(KeyboardInterrupt),
    ):
      shutdown.start("work", work, threading.Event())
    assert not shutdown.join(0)
    goes_on.set()
    assert shutdown.join()


def _compiling(number: int, say: job.Say) -> None:
  """Ctrl-C arrives when the first process begins to compile a candidate."""
  start = shutdown.start
  met: list[str] = []

  def interrupted(name: str, *others: Any) -> threading.Thread:
    thread = start(name, *others)
    if number == 0 and name == "lagom_xla compile 1" and not met:
      met.append(name)
      raise KeyboardInterrupt
    return thread

  proposer = live_step.Proposer({"faster": live_job.faster})
  state, x = live_step.state(), live_step.batch(0)
  variants = []
  with (
    live_job.joined(proposer),
    mock.patch.object(shutdown, "start", interrupted),
  ):
    step: Any = lagom_xla.tune(
      jax.jit(live_step.train_step(0.004), donate_argnums=0)
    )
    while not live_job.is_done(step.report()):
      try:
        state, _ = step(state, x)
      except KeyboardInterrupt:
        continue  # As in a notebook.
      variants.append(step._current.variant)
  say((met, variants, step.report()))


def test_a_candidate_is_tried_despite_ctrl_c_as_its_compile_starts():
  one, other = (it.said[0] for it in live_job.run(_compiling))
  assert one[0] and not other[0]
  assert one[1] == other[1]
  assert "faster: " in one[2]
  assert "of the time" in one[2]


def _waiting(number: int, say: job.Say, *, done: pathlib.Path) -> None:
  """The first process decides only after Ctrl-C in the other one."""
  follow = coordinator_lib.Coordinator.follow

  def met(self: coordinator_lib.Coordinator, times: Any) -> Any:
    if number == 0:
      while not done.exists():
        threading.Event().wait(0.01)
    elif not done.exists():
      threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    return follow(self, times)

  coordinator_lib.Coordinator.follow = met
  signal.signal(signal.SIGINT, signal.default_int_handler)
  state, x = live_step.state(), live_step.batch(0)
  proposer = live_step.Proposer({})
  with live_job.joined(proposer):
    step: Any = lagom_xla.tune(jax.jit(live_step.train_step()))
    if number == 1:
      with pytest.raises(KeyboardInterrupt):
        step(state, x)
      done.touch()
    _, loss = step(state, x)
    while not live_job.is_done(step.report()):
      _, loss = step(state, x)
    say((float(loss), step.report().split("  now: ")[1]))


def test_ctrl_c_interrupts_a_wait_for_the_first_process(tmp_path):
  function = functools.partial(_waiting, done=tmp_path / "done")
  one, other = (it.said for it in live_job.run(function))
  assert one[0][0] == other[0][0]
  assert all(report.startswith("watching") for ((_, report),) in (one, other))


def _leaving(number: int, say: job.Say, *, waits: pathlib.Path) -> None:
  """The first process ends while the other one waits for its phase."""
  # JAX's barrier would not release the processes of a test.
  atexit.unregister(api.clean_up)
  follow = coordinator_lib.Coordinator.follow

  def told(self: coordinator_lib.Coordinator, times: Any) -> Any:
    if number == 1 and times.durations_s:
      waits.touch()
    return follow(self, times)

  coordinator_lib.Coordinator.follow = told
  state, x = live_step.state(), live_step.batch(0)
  with live_job.joined(live_step.Proposer({})):
    step: Any = lagom_xla.tune(jax.jit(live_step.train_step()))
    step(state, x)
    if number == 0:
      while not waits.exists():
        threading.Event().wait(0.01)
      atexit._run_exitfuncs()
      return
    with pytest.warns(RuntimeWarning, match="process 0: it ended"):
      results = step(state, x)
      while "now: stopped" not in step.report():
        results = step(state, x)
    expected = jax.jit(live_step.train_step())(state, x)
    jax.tree.map(np.testing.assert_array_equal, results, expected)
    say(step.report())


def test_a_process_does_not_wait_for_a_first_process_that_ended(tmp_path):
  function = functools.partial(_leaving, waits=tmp_path / "waits")
  _, other = live_job.run(function)
  (report,) = other.said
  assert "now: stopped: process 0: it ended" in report
