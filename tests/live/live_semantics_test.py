# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training acts as under jit, whatever the machine or Ctrl-C does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitted_steps import assert_identical
import lagom_xla
from lagom_xla.live import loop
from lagom_xla.live import step as step_lib
from lagom_xla.live import timing
import live_step
import python_calls


def _tuned(function: Callable[..., Any], **jit_options: Any) -> Any:
  return lagom_xla.tune(jax.jit(function, **jit_options), cache=False)


def _tune_without_warnings(step: Any, *args: Any) -> None:
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    live_step.call_until(step, "now: watch", *args)


def _double(x: jax.Array) -> jax.Array:
  return x * 2


def test_clear_cache_makes_jit_trace_the_function_again():
  factor = 1.0
  with live_step.proposed_by(live_step.Proposer({"again": live_step.again})):
    step = _tuned(lambda x: x * factor)
    for factor in (2.0, 3.0):
      step.clear_cache()
      live_step.call_until(step, "now: watch", jnp.ones(3))
      np.testing.assert_array_equal(step(jnp.ones(3)), np.full(3, factor))
      assert step.report().count("\n  now: ") == 1


@pytest.mark.parametrize("context", [jax.disable_jit, jax.checking_leaks])
def test_calls_under_disable_jit_or_leak_checks_are_left_to_jit(context):
  x = jnp.ones(3)
  with live_step.proposed_by(live_step.Proposer({})):
    step = _tuned(_double)
    step(x)
    with context():
      for _ in range(50):
        np.testing.assert_array_equal(step(x), _double(x))
    if context is jax.disable_jit:
      assert "now: baseline" in step.report()
    live_step.call_until(step, "now: watch", x)


def test_the_step_stays_unchanged_if_no_thread_can_start(monkeypatch):
  with live_step.proposed_by(live_step.Proposer({"again": live_step.again})):
    step = _tuned(_double)
    step(jnp.ones(3))

    def start(thread: threading.Thread) -> None:
      raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.warns(RuntimeWarning, match="can't start new thread"):
      live_step.call_until(step, "now: stopped", jnp.ones(3))


@pytest.mark.parametrize(
  ("module", "name"), [(jax, "block_until_ready"), (time, "perf_counter")]
)
@pytest.mark.parametrize("state", ["baseline", "profiling", "measuring"])
def test_ctrl_c_reaches_the_caller_and_training_can_go_on(
  state, module, name, monkeypatch
):
  interrupts: list[BaseException] = []

  def interrupted(*args: Any) -> Any:
    if interrupts and threading.current_thread() is threading.main_thread():
      raise interrupts.pop()
    return function(*args)

  x = jnp.ones(3)
  proposer = live_step.Proposer({"again": live_step.again})
  with live_step.proposed_by(proposer), monkeypatch.context() as patched:
    function = getattr(module, name)
    patched.setattr(module, name, interrupted)
    step = _tuned(_double)
    step(x)
    live_step.call_until(step, f"now: {state}", x)
    interrupts.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
      for _ in range(100):
        step(x)
    _tune_without_warnings(step, x)
    np.testing.assert_array_equal(step(x), _double(x))


def test_ctrl_c_while_choosing_the_next_phase_ends_tuning(monkeypatch):
  def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt

  x = jnp.ones(3)
  with live_step.proposed_by(live_step.Proposer({"again": live_step.again})):
    step = _tuned(_double)
    step(x)
    with pytest.warns(RuntimeWarning, match="tuning was interrupted"):
      with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(loop.Loop, "next_phase", interrupt)
        for _ in range(100):
          step(x)
      live_step.call_until(step, "now: stopped", x)
    np.testing.assert_array_equal(step(x), _double(x))


class _Signalling:
  """An array that raises a signal when it is waited for."""

  def __init__(self, x: jax.Array):
    self.x = x

  def flatten(self) -> tuple[tuple[jax.Array], None]:
    signal.raise_signal(signal.SIGUSR1)
    return (self.x,), None


jax.tree_util.register_pytree_node(
  _Signalling, _Signalling.flatten, lambda _, leaves: _Signalling(*leaves)
)


def test_a_signal_handler_may_call_the_step_within_a_call():
  x = jnp.ones(3)
  handled: list[jax.Array] = []

  def handle(*unused: Any) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    handled.append(step(x).x)
    signal.signal(signal.SIGUSR1, handle)

  with live_step.proposed_by(live_step.Proposer({"again": live_step.again})):
    step = _tuned(lambda x: _Signalling(x * 2))
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
      step(x)  # jit cannot trace a function within its own trace, either.
      signal.signal(signal.SIGUSR1, handle)
      live_step.call_until(step, "now: watch", x)
    finally:
      signal.signal(signal.SIGUSR1, before)
  assert len(handled) > 10
  for results in handled:
    np.testing.assert_array_equal(results, 2 * x)


def test_errors_found_while_waiting_are_not_raised_by_the_step(monkeypatch):
  num_waits = 0

  def fail(_: Any) -> None:
    nonlocal num_waits
    num_waits += 1
    raise jax.errors.JaxRuntimeError("a result is an error")

  x = jnp.ones(3)
  with live_step.proposed_by(live_step.Proposer({})):
    step = _tuned(_double)
    with monkeypatch.context() as patched:
      patched.setattr(jax, "block_until_ready", fail)
      for _ in range(8):
        np.testing.assert_array_equal(step(x), _double(x))
  assert num_waits


@pytest.mark.parametrize("state", ["measuring", "watching"])
def test_an_error_in_a_callback_reaches_the_caller_once(state):
  calls, errors = [], []

  def calling_back(sleep_s: float) -> Callable[[jax.Array], jax.Array]:
    def callback(x: np.ndarray) -> np.ndarray:
      calls.append(x)
      if errors:
        raise errors.pop()
      live_step.clock.sleep(sleep_s)
      return x

    return lambda x: jax.experimental.io_callback(callback, x, x)

  x = jnp.ones(3)
  faster = jax.jit(calling_back(0)).lower(x).compile()
  with live_step.proposed_by(live_step.Proposer({"faster": lambda _: faster})):
    step = _tuned(calling_back(0.004))
    live_step.call_until(step, f"now: {state}", x)
    while step._current.variant != 1:
      step(x)
    calls.clear()
    errors.append(LookupError("no more data"))
    with pytest.raises((ValueError, RuntimeError), match="no more data"):
      step(x)
    assert len(calls) == 1
    _tune_without_warnings(step, x)
    assert step._current.variant == 1


def test_a_search_stops_once_its_step_is_garbage_collected():
  stopped = threading.Event()

  def wait(stop: threading.Event) -> None:
    stop.wait()
    stopped.set()

  proposer = live_step.Proposer({}, wait)
  with live_step.proposed_by(proposer, waits_for="traces"):
    step = _tuned(_double)
    live_step.call_until(step, "now: search", jnp.ones(3))
    for _ in range(25):
      step(jnp.ones(3))
    del step
    gc.collect()
  assert stopped.wait(live_step.HANGS_S)


def test_an_argument_may_be_named_self():
  def step(self: jax.Array, *, args: float) -> jax.Array:
    return self * args

  with live_step.proposed_by(live_step.Proposer({})):
    multiply = _tuned(step)
    assert multiply(self=jnp.float32(3), args=2.0) == 6


def test_a_step_on_cpus_runs_as_under_jit_with_advice_in_a_warning():
  step = _tuned(_double)
  with pytest.warns(RuntimeWarning, match="cannot be tuned.* cluster="):
    assert step(jnp.ones(3)).tolist() == [2, 2, 2]
  assert python_calls.of(step, jnp.ones(3)) == ["LiveStep.__call__"]
  assert step.report().startswith(
    "_double: unchanged, nothing measured: cpu devices cannot be tuned. "
  )


# A forked process does not have the profiler, and ends immediately.
_ENDS_WHILE_TRACED = """
import os, sys
import jax, jax.numpy as jnp
import lagom_xla
from benchmarks.live import cpu
from lagom_xla.live import loop, tuned
cpu.plug_in()
tuned.LIMITS = loop.Limits(overhead_steps=1e9)  # A trace is worth it.
real = jax.profiler.stop_trace
def stop_trace():
  real()
  print("ended", flush=True)
jax.profiler.stop_trace = stop_trace
step = lagom_xla.tune(jax.jit(lambda x: x * 2), cache=False)
while not jax.profiler.TraceAnnotation.is_enabled():
  step(jnp.ones(3))
if not os.fork():
  sys.exit(0)
os.wait()
print(len(os.listdir(os.environ["TMPDIR"])), flush=True)
print("exits", flush=True)
"""


def test_a_trace_survives_a_fork_and_ends_with_the_process(tmp_path):
  done = subprocess.run(
    (sys.executable, "-W", "ignore", "-c", _ENDS_WHILE_TRACED),
    capture_output=True,
    text=True,
    env={**os.environ, "JAX_PLATFORMS": "cpu", "TMPDIR": str(tmp_path)},
  )
  assert (done.returncode, done.stderr) == (0, "")
  assert done.stdout.split() == ["1", "exits", "ended"]
  assert not list(tmp_path.iterdir())


@pytest.fixture
def proposer() -> Iterator[live_step.Proposer]:
  """A proposer without proposals, for all steps tuned from now on."""
  proposer = live_step.Proposer({})
  with live_step.proposed_by(proposer):
    yield proposer


@pytest.mark.usefixtures("proposer")
def test_alternating_shapes_each_have_a_loop_and_then_bypass_python():
  jitted = jax.jit(lambda x: x * 2)
  step: Any = lagom_xla.tune(jax.jit(lambda x: x * 2))
  batches = [live_step.batch(0, num_rows) for num_rows in (4, 8)]
  expected = [jitted(x) for x in batches]
  for number in range(2 * live_step.NUM_CALLS):
    assert_identical(step(batches[number % 2]), expected[number % 2])
  assert step.report().count("now: watch") == 2
  asked: list[Any] = []
  step._jitted = _Asking(step._jitted, asked)
  for number in range(50):
    assert_identical(step(batches[number % 2]), expected[number % 2])
  assert asked == []  # C++ dispatches both shapes.


class _Asking:
  """A jitted function that records calls that go through Python."""

  def __init__(self, jitted: Any, asked: list[Any]):
    self._jitted = jitted
    self._asked = asked

  def __getattr__(self, name: str) -> Any:
    self._asked.append(name)
    return getattr(self._jitted, name)


@pytest.mark.usefixtures("proposer")
def test_a_report_begins_with_the_signature_that_is_called_most():
  step = lagom_xla.tune(jax.jit(lambda x: x * 2))
  step(live_step.batch(0, num_rows=4))  # A first call may be smaller.
  for number in range(live_step.NUM_CALLS):
    step(live_step.batch(number))
  first, *others = step.report().splitlines()
  assert first.startswith("<lambda>(x: float32[8,16]): unchanged, ")
  assert "<lambda>(x: float32[4,16]): not measured yet" in others


def test_alternating_shapes_are_periodically_watched_for_drift(
  proposer, monkeypatch
):
  # Windows of as few calls as can be, so that they end in a test.
  monkeypatch.setattr(timing, "MIN_WINDOW_S", 0.0)
  monkeypatch.setattr(timing, "MIN_CALLS", 4)
  monkeypatch.setattr(step_lib, "REST_CALLS", 1)
  slow_s = [0.001]

  def sleep(value: np.ndarray) -> np.ndarray:
    live_step.clock.sleep(slow_s[0])
    return value

  def double(x: jax.Array) -> jax.Array:
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(sleep, shape, 2 * x)

  step: Any = lagom_xla.tune(jax.jit(double))
  batches = [live_step.batch(0, num_rows) for num_rows in (4, 8)]
  num_rests, was_resting = 0, False
  for number in live_step.until_it_hangs(step):
    x = batches[number % 2]
    np.testing.assert_array_equal(step(x), 2 * x)
    is_resting = step._current is None
    num_rests += is_resting and not was_resting
    was_resting = is_resting
    if num_rests == 12:
      slow_s[0] = 0.03
    if proposer.measured and proposer.measured[-1].step_s > 0.03:
      break
  assert num_rests >= 12
  # A search for each shape, and one for the drift.
  first, second, drifted = (it.step_s for it in proposer.measured)
  assert max(first, second) < 0.03 < drifted
