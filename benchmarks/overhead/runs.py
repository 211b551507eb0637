# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs of a step under plain jit and tuned, in turns, and how they differ."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import gc
import math
import os
import re
import resource
import statistics
import time
from typing import Any

import jax
from scipy import special

from benchmarks.overhead import steps as steps_lib
import lagom_xla
from lagom_xla.live import shutdown

_STEPS_PER_WAIT = 10
_TOLD = re.compile(r"overhead: (-?[\d.]+) steps")
_NOW = re.compile(r"now: (.*)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """One run: what it took, and what was told of it."""

  wall_s: float
  cpu_s: float
  thread_s: float
  report: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
  """Runs of one step.

  Attributes:
    name: Of the step, in words.
    num_steps: Of a run.
    num_pairs: Of runs.
    step_ms: Of plain jit, by wall clock; the median of runs.
    wall_steps: What tuned runs took longer; mean, low, high.
    cpu_steps: What they took more processor time; mean, low, high.
    thread_steps: The same of the thread that trains, which calls wait for.
    told_steps: What they said so themselves; mean, low, high. None where runs
      were too short for that.
    states: Where tuning was at the end of each.
    load: Of the machine at the end.
  """

  name: str
  num_steps: int
  num_pairs: int
  step_ms: float
  wall_steps: tuple[float, float, float]
  cpu_steps: tuple[float, float, float]
  thread_steps: tuple[float, float, float]
  told_steps: tuple[float, float, float] | None
  states: list[str]
  load: float


def measure(step: steps_lib.Step, *, num_steps: int, num_pairs: int) -> Row:
  """Measures pairs of runs.

  Args:
    step: What runs.
    num_steps: Of a run.
    num_pairs: Of runs, two at least.
  """
  _run(step, step.jitted(), 2 * _STEPS_PER_WAIT)
  pairs = []
  for number in range(num_pairs):
    kinds = (_plain, _tuned) if number % 2 else (_tuned, _plain)
    runs = {kind: kind(step, num_steps) for kind in kinds}
    pairs.append((runs[_plain], runs[_tuned]))
  told = [float(it[1]) for _, t in pairs if (it := _TOLD.search(t.report))]
  wall = [(t.wall_s - p.wall_s) / p.wall_s * num_steps for p, t in pairs]
  cpu = [(t.cpu_s - p.cpu_s) / p.wall_s * num_steps for p, t in pairs]
  thread = [(t.thread_s - p.thread_s) / p.wall_s * num_steps for p, t in pairs]
  return Row(
    name=step.name,
    num_steps=num_steps,
    num_pairs=num_pairs,
    step_ms=1e3 * statistics.median(p.wall_s for p, _ in pairs) / num_steps,
    wall_steps=_interval(wall),
    cpu_steps=_interval(cpu),
    thread_steps=_interval(thread),
    told_steps=_interval(told) if len(told) == num_pairs else None,
    states=[found[1] for _, t in pairs if (found := _NOW.search(t.report))],
    load=os.getloadavg()[0],
  )


def _plain(step: steps_lib.Step, num_steps: int) -> Run:
  return _run(step, step.jitted(), num_steps)


def _tuned(step: steps_lib.Step, num_steps: int) -> Run:
  with step.surroundings():
    tuned = lagom_xla.tune(step.jitted(), cache=False)
    return _run(step, tuned, num_steps)


def _run(step: steps_lib.Step, function: Any, num_steps: int) -> Run:
  """Trains, and waits for what still goes on beside the run at its end."""
  weights = step.weights
  cpu_s, thread_s = _cpu_s(), time.thread_time()
  wall_s = time.perf_counter()
  for number in range(num_steps):
    weights = function(weights, step.batch)
    if number % _STEPS_PER_WAIT == 0:
      jax.block_until_ready(weights)
  jax.block_until_ready(weights)
  wall_s = time.perf_counter() - wall_s
  thread_s = time.thread_time() - thread_s
  report = function.report() if hasattr(function, "report") else ""
  del function
  gc.collect()
  shutdown.join()
  return Run(
    wall_s=wall_s, cpu_s=_cpu_s() - cpu_s, thread_s=thread_s, report=report
  )


def _cpu_s() -> float:
  """Processor time of this process and of those that it started."""
  used = map(
    resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
  )
  return sum(it.ru_utime + it.ru_stime for it in used)


def _interval(values: Sequence[float]) -> tuple[float, float, float]:
  """The mean, and its 95 % interval."""
  num = len(values)
  mean = statistics.fmean(values)
  half = statistics.stdev(values) / math.sqrt(num)
  half *= float(special.stdtrit(num - 1, 0.975))
  return mean, mean - half, mean + half
