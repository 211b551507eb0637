# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A train step to tune while it trains, and proposers with known gains.

A variant of the step is the same program with the same bits, and a host
callback that advances a clock by the variant's time. Only that clock counts, so
no verdict depends on the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
import contextlib
import dataclasses
import functools
import itertools
import json
import re
import threading
import time
from typing import Any, Literal
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import lagom_xla
from lagom_xla import errors
from lagom_xla.jax_internals import lowerings
from lagom_xla.live import coordinator
from lagom_xla.live import loop
from lagom_xla.live import proposals as proposals_lib
from lagom_xla.live import shutdown
from lagom_xla.live import timing
from lagom_xla.live import tracing
from lagom_xla.live import tuned

State = dict[str, Any]

# Longer than any test on the real clock.
LONG_S = 1e5
LIMITS = loop.Limits(
  search_s=LONG_S,
  compile_s=LONG_S,
  trace_s=LONG_S,
  phase_s=LONG_S,
  overhead_steps=1e9,
)
# After this many seconds a test hangs, on any machine.
HANGS_S = 600.0


class _Clock:
  """A clock that steps advance, and each look by a little."""

  def __init__(self) -> None:
    self._now_s = 0.0
    self._lock = threading.Lock()

  def __call__(self) -> float:
    return self.sleep(1e-5)

  def sleep(self, seconds: float) -> float:
    with self._lock:
      self._now_s += seconds
      return self._now_s


clock = _Clock()


def train_step(sleep_s: float = 0.0) -> Callable[..., Any]:
  """A step with momentum on two matrices, which takes this long."""

  def step(state: State, x: jax.Array) -> tuple[State, jax.Array]:
    def loss_of(weights: list[jax.Array]) -> jax.Array:
      h = x
      for w in weights:
        h = jnp.tanh(h @ w)
      return jnp.mean(h**2)

    loss, grads = jax.value_and_grad(loss_of)(state["weights"])
    momenta = [
      0.9 * m + g for m, g in zip(state["momenta"], grads, strict=True)
    ]
    weights = [
      w - 0.1 * m for w, m in zip(state["weights"], momenta, strict=True)
    ]
    if sleep_s:
      loss = _after_sleep(loss, sleep_s)
    return {"weights": weights, "momenta": momenta}, loss

  return step


def _after_sleep(x: jax.Array, sleep_s: float) -> jax.Array:
  def sleep(value: np.ndarray) -> np.ndarray:
    clock.sleep(sleep_s)
    return value

  shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
  return jax.pure_callback(sleep, shape, x)


def state() -> State:
  def array(seed: int) -> jax.Array:
    values = np.random.default_rng(seed).normal(size=(16, 16))
    return jnp.asarray(values.astype(np.float32))

  return {
    "weights": [array(1), array(2)],
    "momenta": [array(3), array(4)],
  }


def batch(seed: int, num_rows: int = 8) -> jax.Array:
  values = np.random.default_rng(seed).normal(size=(num_rows, 16))
  return jnp.asarray(values.astype(np.float32))


@dataclasses.dataclass
class Proposer(proposals_lib.Proposer):
  """Proposes steps by name, each made from the lowered one by its maker.

  `before` is called first. `measured` and `compiled` record the inputs of
  searches and the compiles.
  """

  makers: dict[str, Callable[[jax.stages.Lowered], jax.stages.Compiled]]
  before: Callable[[threading.Event], None] = lambda _: None
  measured: list[proposals_lib.Measured] = dataclasses.field(
    default_factory=list
  )
  compiled: list[str] = dataclasses.field(default_factory=list)

  def proposals(
    self,
    lowered: jax.stages.Lowered,
    measured: proposals_lib.Measured,
    stop: threading.Event,
  ) -> Generator[proposals_lib.Proposal, None, None]:
    del lowered
    self.measured.append(measured)
    self.before(stop)
    for name in self.makers:
      payload = json.dumps(name).encode()
      yield proposals_lib.Proposal(name=name, payload=payload)

  def compile(
    self, lowered: jax.stages.Lowered, payload: bytes
  ) -> jax.stages.Compiled:
    name = json.loads(payload)
    self.compiled.append(name)
    return self.makers[name](lowered)

  def digest(self, compiled: jax.stages.Compiled) -> str:
    del compiled
    return ""


def sleeping(
  sleep_s: float, **jit_options: Any
) -> Callable[[jax.stages.Lowered], jax.stages.Compiled]:
  """A maker of the train step with another sleep, for the same arguments."""

  def compile_(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    args, kwargs = jax.tree.map(
      lambda info: jax.ShapeDtypeStruct(info.shape, info.dtype),
      lowered.args_info,
    )
    options: dict[str, Any] = {"donate_argnums": 0, **jit_options}
    jitted = jax.jit(train_step(sleep_s), **options)
    return jitted.lower(*args, **kwargs).compile()

  return compile_


@dataclasses.dataclass
class Fragile:
  """An executable that raises after a number of calls."""

  compiled: jax.stages.Compiled
  num_calls: int

  def __getattr__(self, name: str) -> Any:
    if name.startswith("_"):
      raise AttributeError(name)
    return getattr(self.compiled, name)

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    self.num_calls -= 1
    if self.num_calls < 0:
      raise RuntimeError("out of resources")
    return self.compiled(*args, **kwargs)


def failing(message: str) -> Callable[[jax.stages.Lowered], Any]:
  def compile_(lowered: jax.stages.Lowered) -> Any:
    raise errors.CompileError(message)

  return compile_


@contextlib.contextmanager
def proposed_by(
  proposer: proposals_lib.Proposer,
  limits: loop.Limits = LIMITS,
  *,
  waits_for: Literal["all", "traces", "nothing"] = "all",
  now_s: Callable[[], float] = clock,
) -> Iterator[None]:
  """Makes steps tuned from now on use this proposer.

  By default, a call returns only after the work that it started beside training
  has a result. Then the variant of a call depends only on its number. `now_s`
  times blocks.
  """
  with contextlib.ExitStack() as patches:

    def patch(where: Any, name: str, value: object) -> None:
      patches.enter_context(mock.patch.object(where, name, value))

    patch(tuned, "proposer_of", lambda *unused: proposer)
    patch(tuned, "LIMITS", limits)
    patch(time, "perf_counter", now_s)
    # The minimum, because no test depends on the certainty of times.
    patch(timing, "NUM_BLOCKS", 2)
    patch(timing, "_BLOCK_CALLS", (2, 3))
    patch(timing, "_CHUNK_CALLS", (1, 4))
    patch(tracing, "_LONGEST_WAIT_S", HANGS_S)
    if waits_for != "nothing":
      patch(tracing.Tracer, "end", _end_and_wait)
    if waits_for == "all":
      patch(coordinator._FirstProcess, "found", _found_by_then)
      patch(shutdown, "start", _start_and_wait)
    yield


def bits(tree: Any) -> list[bytes]:
  return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


@functools.cache
def _jitted() -> Any:
  return jax.jit(train_step(), donate_argnums=0)


def tuned_step(sleep_s: float = 0.004, **options: Any) -> Any:
  """The train step, tuned while it trains."""
  jitted = jax.jit(train_step(sleep_s), donate_argnums=0)
  return lagom_xla.tune(jitted, **options)


def train(
  step: Any, is_done: Callable[[str], bool] | str, *, calls_after: int = 3
) -> list[str]:
  """Trains beside jit until the report meets a condition, and a little longer.

  Checks after every call that results have the same bits and arguments are
  donated.

  Returns:
    The states of the loop.
  """
  jitted = _jitted()
  ours, theirs = state(), state()
  states: list[str] = []
  num_after = 0
  for number in until_it_hangs(step):
    x, donated = batch(number), jax.tree.leaves(ours)
    ours, our_loss = step(ours, x)
    theirs, their_loss = jitted(theirs, x)
    assert bits((ours, our_loss)) == bits((theirs, their_loss))
    assert all(leaf.is_deleted() for leaf in donated)
    assert not x.is_deleted()
    report = step.report()
    # From "  now: STATE: WORDS" of the first signature.
    now = re.split(r"[: \n]", report.partition("\n  now: ")[2])[0]
    if states[-1:] != [now]:
      states.append(now)
    if isinstance(is_done, str):
      num_after += is_done in report
    else:
      num_after += is_done(report)
    if num_after > calls_after:
      break
  return states


def call_until(step: Any, words: str, *args: Any) -> int:
  """Calls a step until its report has these words; counts the calls."""
  for number in until_it_hangs(step):
    if words in step.report():
      return number
    jax.block_until_ready(step(*args))
  raise AssertionError("It goes on until it hangs.")


def until_it_hangs(step: Any) -> Iterator[int]:
  """Counts calls of a step, until a time limit."""
  end_s, num_stays = time.monotonic() + HANGS_S, 0
  for number in itertools.count():
    num_stays += "now: stopped" in step.report()
    assert time.monotonic() < end_s and num_stays < _BUSY_CALLS, step.report()
    if number > _BUSY_CALLS:  # Leaves the machine to other threads.
      time.sleep(0.001)
    yield number


_BUSY_CALLS = 300
# Enough calls to measure a step, trace it, and run candidates.
NUM_CALLS = 90


def again(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
  """Another executable of the same step."""
  return lowerings.copied(lowered).compile()


_end, _start = tracing.Tracer.end, shutdown.start
_found = coordinator._FirstProcess.found


def _end_and_wait(tracer: tracing.Tracer) -> None:
  _end(tracer)
  while tracer.is_ending:
    time.sleep(1e-3)


def _found_by_then(first: coordinator._FirstProcess) -> Any:
  while first._found.empty():
    time.sleep(1e-3)
  return _found(first)


def _start_and_wait(
  name: str, run: Callable[[], None], stop: threading.Event
) -> threading.Thread:
  """Starts a thread; waits for its end if it compiles or stores plans."""
  thread = _start(name, run, stop)
  if name.startswith(("lagom_xla compile", "lagom_xla memory")):
    thread.join()
  return thread
