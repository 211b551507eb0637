# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Cost of calling a tuned step, compared with plain jit.

    python -m benchmarks.dispatch [--arguments=1,64]

Blocks of calls of a tiny step alternate, A B B A, between plain jit and the
tuned step once it is only watched, because tuning is done or, for such a tiny
step, waits. Measured on CPUs; dispatch is the same on GPUs. Counts the
processor time of the calling thread, which other work on the machine does not
affect. Prints medians over blocks in nanoseconds per call, and the median and
quartiles of the difference over pairs.
"""

from __future__ import annotations

from collections.abc import Callable
import gc
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import table as table_lib
from benchmarks.live import cpu
import lagom_xla

_NUM_CALLS = 200
_NUM_PAIRS = 40
_MOST_CALLS = 5000


def measure(num_arguments: int) -> dict[str, float]:
  """Measures calls of a step that takes and returns this many arrays."""

  def step(arrays: list[jax.Array]) -> list[jax.Array]:
    return [array + 1 for array in arrays]

  arrays = [jnp.zeros(()) for _ in range(num_arguments)]
  jitted = jax.jit(step)
  # The step has no collectives, so nothing is proposed.
  cpu.plug_in()
  tuned = lagom_xla.tune(jax.jit(step), cache=False)
  jitted(arrays)
  for _ in range(_MOST_CALLS):
    jax.block_until_ready(tuned(arrays))
    if "now: wa" in tuned.report():  # Watched, while tuning waits or is done.
      break
  else:
    raise RuntimeError("tuning of the step did not end")
  jit_ns, tuned_ns = [], []
  for number in range(_NUM_PAIRS):
    pair = ((jitted, jit_ns), (tuned, tuned_ns))
    for called, times_ns in reversed(pair) if number % 2 else pair:
      times_ns.append(_block_ns(called, arrays))
  extra = [tuned - jit for jit, tuned in zip(jit_ns, tuned_ns, strict=True)]
  low, middle, high = statistics.quantiles(extra, n=4)
  return {
    "num_arguments": num_arguments,
    "jit_ns": statistics.median(jit_ns),
    "tuned_ns": statistics.median(tuned_ns),
    "extra_ns": middle,
    "extra_low_ns": low,
    "extra_high_ns": high,
  }


def _block_ns(step: Callable[..., Any], arrays: list[jax.Array]) -> float:
  """Processor time per call, with nothing in flight before and after."""
  results: Any = None
  gc.disable()
  try:
    start_ns = time.thread_time_ns()
    for _ in range(_NUM_CALLS):
      results = step(arrays)
    jax.block_until_ready(results)
    return (time.thread_time_ns() - start_ns) / _NUM_CALLS
  finally:
    gc.enable()


def main() -> None:
  """Runs the command."""
  parser = table_lib.parser("benchmarks.dispatch", __doc__)
  parser.add_argument("--arguments", type=table_lib.names, default=("1", "64"))
  arguments = parser.parse_args()
  rows = [measure(int(number)) for number in arguments.arguments]
  columns = dict.fromkeys(rows[0], ".0f")
  table = table_lib.Table(
    name="dispatch",
    title="Nanoseconds per call, with plain jit and tuned",
    columns=table_lib.columns(**columns),
    rows=rows,
  )
  table_lib.show([table], arguments.format, arguments.csv)


if __name__ == "__main__":
  main()
