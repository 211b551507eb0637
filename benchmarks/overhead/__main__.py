# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Overhead of tuning a run: what runs lose beside plain jit, and what is told.

    python -m benchmarks.overhead [--device_ms=50] [--rows=64,400]
        [--steps=1000] [--pairs=6] [--format=text|json]

Runs of small data-parallel steps on devices of XLA:CPU take turns: under plain
jit, and tuned. Each compiles the step anew. Printed are, in steps of plain jit:
what tuned runs took longer by wall clock, what they took more processor time
(of all threads and processes, and of the thread that trains), and what their
reports told, each with a 95 % interval over pairs. In front stands what imports
take of a core, which none of these has in it.

Steps of `--rows`, with a device for each core, take what their products take of
the cores. Then a search takes from them what it takes, and other work of the
machine does so, too. Steps of `--device_ms` stand for those of GPUs: for so
long each device is at work, which takes no core (`device.py`), before
all-reduces that can be tuned, and all states of tuning are gone through. They
show what the host's part of tuning delays such a step by: its first call, waits
at the ends of blocks, the trace, a search and compiles beside it. They leave
out what is otherwise on GPUs: CUPTI in the trace, a build without command
buffers, candidates that are slower, and searches in processes of their own
instead of threads that share Python's lock.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax

from benchmarks.overhead import runs
from benchmarks.overhead import steps

# What a user imports, and what a search on CPUs does beside training.
_IMPORTS = {
  "jax": "import jax",
  "lagom_xla.tune": "import lagom_xla; lagom_xla.tune",
  "a search": "import benchmarks.live.cpu.proposer, scipy.special;"
  " import lagom_xla.live.plan_cache",
}


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


def main() -> None:
  """Prints a row for each step."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--format", choices=("text", "json"), default="text")
  parser.add_argument("--device_ms", default="50")
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
  for step in (
    *map(steps.on_device, map(float, filter(None, flags.device_ms.split(",")))),
    *map(steps.on_cores, map(int, filter(None, flags.rows.split(",")))),
  ):
    row = runs.measure(step, num_steps=flags.steps, num_pairs=flags.pairs)
    if flags.format == "json":
      print(json.dumps(dataclasses.asdict(row)), flush=True)
    else:
      print(in_words(row), flush=True)


def in_words(row: runs.Row) -> str:
  """A row as it is printed."""

  def told(values: tuple[float, float, float] | None) -> str:
    if values is None:
      return "nothing"
    return "{:+.1f} ({:+.1f} to {:+.1f})".format(*values)

  return (
    f"{row.name}, {row.step_ms:.3g} ms a step, of {row.num_steps:,} steps:"
    f" wall clock {told(row.wall_steps)}, processor {told(row.cpu_steps)}, of"
    f" the thread {told(row.thread_steps)}, told {told(row.told_steps)}; load"
    f" {row.load:.1f}\n" + "".join(f"  {state}\n" for state in row.states)
  )


if __name__ == "__main__":
  main()
