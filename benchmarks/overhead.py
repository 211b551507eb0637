# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Overhead of tuning a run: what runs lose beside plain jit, and what is told.

    python -m benchmarks.overhead [--rows=64,400] [--steps=1000] [--pairs=6]
        [--format=text|json]

Runs of a small data-parallel step on XLA:CPU, with a device for each core, take
turns: under plain jit, and tuned. Each compiles the step anew. Printed are, in
steps of plain jit: what tuned runs took longer by wall clock, what they took
more processor time (of all threads and processes, and of the thread that
trains), each with a 95 % interval over pairs, and what their reports told. In
front stands what imports take of a core, which none of these has in it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
import dataclasses
import gc
import json
import math
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

import lagom_xla
from lagom_xla.live import ending

_WIDTH = 256
_NUM_LAYERS = 6
_STEPS_PER_WAIT = 10
_P = jax.sharding.PartitionSpec
# What a user imports, and what a search on CPUs does beside training.
_IMPORTS = {
  "jax": "import jax",
  "lagom_xla.tune": "import lagom_xla; lagom_xla.tune",
  "a search": "import lagom_xla.live.cpu, lagom_xla.live.history.kept;"
  " import scipy.special",
}
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
    num_rows: Of the batch, on each device.
    step_ms: Of plain jit, by wall clock; the median of runs.
    wall_steps: What tuned runs took longer; mean, low, high.
    cpu_steps: What they took more processor time; mean, low, high.
    thread_steps: The same of the thread that trains, which calls wait for.
    told_steps: What they said so themselves; the mean.
    states: Where tuning was at the end of each.
    load: Of the machine at the end.
  """

  num_rows: int
  step_ms: float
  wall_steps: tuple[float, float, float]
  cpu_steps: tuple[float, float, float]
  thread_steps: tuple[float, float, float]
  told_steps: float
  states: list[str]
  load: float


def imports() -> dict[str, float]:
  """What each import takes of a core after those before it, in seconds."""
  code = "from time import thread_time as t; begin = t()\n"
  for statement in _IMPORTS.values():
    code += f"{statement}\nprint(t() - begin); begin = t()\n"
  command = (sys.executable, "-c", code)
  said = [subprocess.check_output(command).split() for _ in range(5)]
  medians = (
    statistics.median(map(float, it)) for it in zip(*said, strict=True)
  )
  return dict(zip(_IMPORTS, medians, strict=True))


def measure(num_rows: int, *, num_steps: int, num_pairs: int) -> Row:
  """Measures pairs of runs."""
  made = _made(num_rows)
  _run(made, _plain(made), 2 * _STEPS_PER_WAIT)
  pairs = []
  for number in range(num_pairs):
    kinds = (_plain, _tuned) if number % 2 else (_tuned, _plain)
    runs = {kind: _run(made, kind(made), num_steps) for kind in kinds}
    pairs.append((runs[_plain], runs[_tuned]))
  told = [_TOLD.search(tuned.report) for _, tuned in pairs]
  wall = [(t.wall_s / p.wall_s - 1) * num_steps for p, t in pairs]
  cpu = [(t.cpu_s / p.cpu_s - 1) * num_steps for p, t in pairs]
  thread = [(t.thread_s - p.thread_s) / p.wall_s * num_steps for p, t in pairs]
  return Row(
    num_rows=num_rows,
    step_ms=1e3 * statistics.median(p.wall_s for p, _ in pairs) / num_steps,
    wall_steps=_interval(wall),
    cpu_steps=_interval(cpu),
    thread_steps=_interval(thread),
    told_steps=statistics.fmean(float(it[1]) for it in told if it),
    states=[found[1] for _, t in pairs if (found := _NOW.search(t.report))],
    load=os.getloadavg()[0],
  )


@dataclasses.dataclass(frozen=True)
class _Made:
  function: Callable[..., Any]
  weights: list[jax.Array]
  batch: jax.Array


def _made(num_rows: int) -> _Made:
  mesh = jax.sharding.Mesh(np.asarray(jax.devices()), ("data",))

  def loss_of(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    for weight in weights:
      x = jnp.tanh(x @ weight)
    return jnp.mean(x**2)

  def step(weights: list[jax.Array], x: jax.Array) -> list[jax.Array]:
    grads = jax.lax.pmean(jax.grad(loss_of)(weights, x), "data")
    return [w - 0.01 * g for w, g in zip(weights, grads, strict=True)]

  def placed(array: np.ndarray, spec: jax.sharding.PartitionSpec) -> jax.Array:
    return jax.device_put(array, jax.sharding.NamedSharding(mesh, spec))

  noise = np.random.default_rng(0)
  weights = [
    noise.normal(size=(_WIDTH, _WIDTH), scale=_WIDTH**-0.5).astype(np.float32)
    for _ in range(_NUM_LAYERS)
  ]
  batch = np.ones((num_rows * len(jax.devices()), _WIDTH), np.float32)
  mapped = jax.shard_map(
    step, mesh=mesh, in_specs=(_P(), _P("data")), out_specs=_P()
  )
  return _Made(
    mapped, [placed(it, _P()) for it in weights], placed(batch, _P("data"))
  )


def _plain(made: _Made) -> Any:
  # Another function each time, or jit would have compiled it.
  return jax.jit(lambda *args: made.function(*args))


def _tuned(made: _Made) -> Any:
  return lagom_xla.tune(_plain(made), cache=False)


def _run(made: _Made, step: Any, num_steps: int) -> Run:
  """Trains, and waits for what still goes on beside the run at its end."""
  weights = made.weights
  cpu_s, thread_s = _cpu_s(), time.thread_time()
  wall_s = time.perf_counter()
  for number in range(num_steps):
    weights = step(weights, made.batch)
    if number % _STEPS_PER_WAIT == 0:
      jax.block_until_ready(weights)
  jax.block_until_ready(weights)
  wall_s = time.perf_counter() - wall_s
  thread_s = time.thread_time() - thread_s
  report = step.report() if hasattr(step, "report") else ""
  del step
  gc.collect()
  ending.join()
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


def main() -> None:
  """Prints a row for each batch."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--format", choices=("text", "json"), default="text")
  parser.add_argument("--rows", default="64,400")
  parser.add_argument("--steps", type=int, default=1000)
  parser.add_argument("--pairs", type=int, default=6)
  flags = parser.parse_args()
  jax.config.update("jax_num_cpu_devices", os.cpu_count())
  imports_s = imports()
  if flags.format == "json":
    print(json.dumps({"imports_s": imports_s}), flush=True)
  else:
    told = ", ".join(f"{name} {s:.2f} s" for name, s in imports_s.items())
    print(f"imports: {told}", flush=True)
  for num_rows in map(int, flags.rows.split(",")):
    row = measure(num_rows, num_steps=flags.steps, num_pairs=flags.pairs)
    if flags.format == "json":
      print(json.dumps(dataclasses.asdict(row)), flush=True)
    else:
      print(_in_words(row, flags.steps), flush=True)


def _in_words(row: Row, num_steps: int) -> str:
  def told(values: tuple[float, float, float]) -> str:
    return "{:+.1f} ({:+.1f} to {:+.1f})".format(*values)

  return (
    f"{row.num_rows} rows, {row.step_ms:.3g} ms a step, of {num_steps:,} steps:"
    f" wall clock {told(row.wall_steps)}, processor {told(row.cpu_steps)}, of"
    f" the thread {told(row.thread_steps)}, told {row.told_steps:.1f}; load"
    f" {row.load:.1f}\n" + "".join(f"  {state}\n" for state in row.states)
  )


if __name__ == "__main__":
  main()
