# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Jobs whose processes train separately, but in step with each other.

No data crosses processes, so that survivors can go on. Timeouts never expire by
themselves, however busy the machine is; a file makes them expire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import itertools
import pathlib
import time
from typing import Any
from unittest import mock
import warnings

import jax
import numpy as np

import job
import lagom_xla
from lagom_xla.jax_internals import store
from lagom_xla.live import loop
from lagom_xla.live import proposals
import live_step
from live_step import LIMITS
import quick


@dataclasses.dataclass(frozen=True)
class Trained:
  """The result of a training: the variants of its calls, and the messages."""

  variants: list[int]
  warned: list[str]
  report: str


def run(
  function: Callable[[int, job.Say], None], num_processes: int = 2
) -> list[job.Ended]:
  """Runs a function in the processes of a job, with one device each."""
  one = f"--xla_force_host_platform_device_count=1 {quick.flags()}"
  environ = {"XLA_FLAGS": one}
  return job.run(
    function, num_processes, dict.fromkeys(range(num_processes), environ)
  )


# Compiles the step without the sleep that takes its time.
faster = live_step.sleeping(0.0)


@contextlib.contextmanager
def time_flies(once: pathlib.Path) -> Iterator[None]:
  """Makes all timeouts expire as soon as a file exists.

  This includes later waits, because the clock advances with each look.
  """
  real = time.monotonic
  num_looks = itertools.count(1)

  def now_s() -> float:
    return real() + (
      10 * live_step.LONG_S * next(num_looks) if once.exists() else 0
    )

  with mock.patch.object(time, "monotonic", now_s):
    yield


@contextlib.contextmanager
def joined(
  proposer: proposals.Proposer,
  limits: loop.Limits = LIMITS,
) -> Iterator[None]:
  """Makes all processes tune steps together from now on."""

  def everyone(lowered: jax.stages.Lowered) -> frozenset[int]:
    del lowered
    return frozenset(range(jax.process_count()))

  with (
    mock.patch.object(store, "processes_of", everyone),
    live_step.proposed_by(proposer, limits, waits_for="traces"),
  ):
    yield


def train(
  proposer: live_step.Proposer,
  limits: loop.Limits = LIMITS,
) -> Trained:
  """Trains until tuning has ended, and for a few more calls."""
  variants = []
  with (
    joined(proposer, limits),
    warnings.catch_warnings(record=True) as warned,
  ):
    warnings.simplefilter("always")
    step: Any = lagom_xla.tune(
      jax.jit(live_step.train_step(0.004), donate_argnums=0)
    )
    jitted = jax.jit(live_step.train_step(), donate_argnums=0)
    ours, theirs = live_step.state(), live_step.state()
    num_after = 0
    for number in itertools.count():
      x = live_step.batch(number % 50)
      ours, our_loss = step(ours, x)
      theirs, their_loss = jitted(theirs, x)
      assert np.asarray(our_loss) == np.asarray(their_loss)
      variants.append(step._current.variant)
      num_after += is_done(step.report())
      if num_after > 3:
        break
  words = [str(warning.message) for warning in warned]
  return Trained(variants, words, step.report())


def is_done(report: str) -> bool:
  """Whether tuning has ended."""
  return "now: watch" in report or "now: stopped" in report
