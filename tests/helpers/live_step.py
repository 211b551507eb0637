# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A train step to tune while it trains, and proposers of known worth.

A variant of the step is the same program, with the same bits, and with a host
callback that sleeps: how long it does says what a proposal saves or costs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
import contextlib
import dataclasses
import json
import re
import threading
import time
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import lagom_xla
from lagom_xla import errors
from lagom_xla.live import loop
from lagom_xla.live import proposals as proposals_lib
from lagom_xla.live import timing
from lagom_xla.live import tracing
from lagom_xla.live import tuned

State = dict[str, Any]

LIMITS = loop.Limits(search_s=10, compile_s=10, overhead_steps=1e9, phase_s=10)


def train_step(sleep_s: float = 0.0) -> Callable[..., Any]:
  """Momentum on two matrices; waits for so long at every step."""

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
    time.sleep(sleep_s)
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
  """Proposes steps by name, each made of the lowered one by its maker.

  `before` is called first; what searches were told and what was compiled stays
  in `measured` and `compiled`.
  """

  makers: dict[str, Callable[[jax.stages.Lowered], jax.stages.Compiled]]
  before: Callable[[threading.Event], None] = lambda _: None
  measured: list[proposals_lib.Measured] = dataclasses.field(
    default_factory=list
  )
  compiled: list[str] = dataclasses.field(default_factory=list)
  digests: dict[str, str] = dataclasses.field(default_factory=dict)

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
    return self.digests.get(self.compiled[-1], "")


def sleeping(
  sleep_s: float, **jit_options: Any
) -> Callable[[jax.stages.Lowered], jax.stages.Compiled]:
  """Makes the train step with another sleep, for the same arguments."""

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
  """An executable that raises once it has been called so-and-so often."""

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
  waits_for_traces: bool = True,
) -> Iterator[None]:
  """Steps that are tuned from now on get their proposals from this one.

  By default a traced call returns once the trace is written, so that what a
  call comes to does not depend on how busy the machine is.
  """
  with (
    mock.patch.object(tuned, "proposer_of", lambda *unused: proposer),
    mock.patch.object(tuned, "LIMITS", limits),
    # The fewest: nothing that a test states rests on how sure a baseline is.
    mock.patch.object(timing, "NUM_BLOCKS", 2),
    mock.patch.object(tracing.Tracer, "end", _end_and_wait)
    if waits_for_traces
    else contextlib.nullcontext(),
  ):
    yield


_MOST_CALLS = 2000


def bits(tree: Any) -> list[bytes]:
  return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def tuned_step(sleep_s: float = 0.004, **options: Any) -> Any:
  """The train step, tuned while it trains."""
  jitted = jax.jit(train_step(sleep_s), donate_argnums=0)
  return lagom_xla.tune(jitted, **options)


def train(
  step: Any, is_done: Callable[[str], bool] | str, *, calls_after: int = 3
) -> list[str]:
  """Trains beside jit until a report says so, or has these words; and a bit.

  Results must be the same bits after every call, and arguments donated.

  Returns:
    The states that the loop went through.
  """
  jitted = jax.jit(train_step(), donate_argnums=0)
  ours, theirs = state(), state()
  states: list[str] = []
  num_after = 0
  for number in range(_MOST_CALLS):
    x, donated = batch(number), jax.tree.leaves(ours)
    ours, our_loss = step(ours, x)
    theirs, their_loss = jitted(theirs, x)
    assert bits((ours, our_loss)) == bits((theirs, their_loss))
    assert all(leaf.is_deleted() for leaf in donated)
    assert not x.is_deleted()
    report = step.report()
    # Of the first signature, "  now: STATE, after: WORDS".
    now = re.split(r"[,\n]", report.partition("\n  now: ")[2])[0]
    if states[-1:] != [now]:
      states.append(now)
    if isinstance(is_done, str):
      num_after += is_done in report
    else:
      num_after += is_done(report)
    if num_after > calls_after:
      return states
  raise AssertionError(f"it is not done: {step.report()}")


def call_until(step: Any, words: str, *args: Any) -> int:
  """Calls a step until its report has these words; returns how often."""
  for number in range(_MOST_CALLS):
    if words in step.report():
      return number
    jax.block_until_ready(step(*args))
    time.sleep(0.001)
  raise AssertionError(step.report())


# Calls in which a step is measured, traced, and runs candidates.
NUM_CALLS = 200


def again(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
  """Another executable of the same step."""
  options: Any = {"xla_cpu_enable_fast_math": False}
  return lowered.compile(compiler_options=options)


@contextlib.contextmanager
def proposed_again() -> Iterator[Proposer]:
  """The same step is proposed, compiled again, time after time."""
  proposer = Proposer({f"again {n}": again for n in range(99)})
  with proposed_by(proposer):
    yield proposer


_end = tracing.Tracer.end


def _end_and_wait(tracer: tracing.Tracer) -> None:
  _end(tracer)
  while tracer.is_ending:
    time.sleep(1e-3)
