# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dispatch of a tuned step: what a call costs beyond one under plain jit.

    python -m benchmarks.dispatch [--format=json] [--arguments=1,64]

Blocks of calls of a tiny step take turns, A B B A: as jit runs it, and as it is
once the step is watched, as tuning is done or, with so tiny a step, waits.
Measured on CPU; a call's way to XLA is the same on GPUs. Counted is the
processor time of the calling thread, on which other work of the machine does
not act. Printed are medians over blocks in
nanoseconds a call, and the difference's median and quartiles over pairs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
import dataclasses
import gc
import json
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.live import cpu
import lagom_xla

_NUM_CALLS = 200
_NUM_PAIRS = 40
_MOST_CALLS = 5000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
  """What calls of a step with so many arguments cost.

  Attributes:
    num_arguments: Arrays that the step takes and returns.
    jit_ns: A call under plain jit.
    tuned_ns: A call of the tuned step.
    extra_ns: What it costs more; the median of pairs.
    extra_low_ns: Its lower quartile.
    extra_high_ns: Its upper quartile.
  """

  num_arguments: int
  jit_ns: float
  tuned_ns: float
  extra_ns: float
  extra_low_ns: float
  extra_high_ns: float


def measure(num_arguments: int, *, num_pairs: int = _NUM_PAIRS) -> Row:
  """Measures the calls of a step.

  Args:
    num_arguments: Arrays that it takes and returns.
    num_pairs: Pairs of blocks.
  """

  def step(arrays: list[jax.Array]) -> list[jax.Array]:
    return [array + 1 for array in arrays]

  arrays = [jnp.zeros(()) for _ in range(num_arguments)]
  jitted = jax.jit(step)
  # It has no collectives, so that nothing is proposed.
  cpu.plug_in()
  tuned = lagom_xla.tune(jax.jit(step), cache=False)
  jitted(arrays)
  for _ in range(_MOST_CALLS):
    jax.block_until_ready(tuned(arrays))
    if "now: wa" in tuned.report():  # Watched, while tuning waits or is done.
      break
  else:
    raise RuntimeError("the step does not come to be watched")
  pairs = [
    _pair(jitted, tuned, arrays, is_swapped=bool(number % 2))
    for number in range(num_pairs)
  ]
  extra = [theirs - ours for ours, theirs in pairs]
  low, middle, high = statistics.quantiles(extra, n=4)
  return Row(
    num_arguments=num_arguments,
    jit_ns=statistics.median(ours for ours, _ in pairs),
    tuned_ns=statistics.median(theirs for _, theirs in pairs),
    extra_ns=middle,
    extra_low_ns=low,
    extra_high_ns=high,
  )


def _pair(
  jitted: Callable[..., Any],
  tuned: Callable[..., Any],
  arrays: list[jax.Array],
  *,
  is_swapped: bool,
) -> tuple[float, float]:
  if is_swapped:
    theirs = _block_ns(tuned, arrays)
    return _block_ns(jitted, arrays), theirs
  ours = _block_ns(jitted, arrays)
  return ours, _block_ns(tuned, arrays)


def _block_ns(step: Callable[..., Any], arrays: list[jax.Array]) -> float:
  """Processor time a call, with nothing in flight before and after."""
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
  """Prints a row for each number of arguments."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--format", choices=("text", "json"), default="text")
  parser.add_argument("--arguments", default="1,64")
  flags = parser.parse_args()
  rows = [measure(int(number)) for number in flags.arguments.split(",")]
  if flags.format == "json":
    print(json.dumps({"rows": [dataclasses.asdict(row) for row in rows]}))
    return
  for row in rows:
    print(
      f"{row.num_arguments:4} arguments: jit {row.jit_ns:8.0f} ns, tuned"
      f" {row.tuned_ns:8.0f} ns, {row.extra_ns:+.0f} ns"
      f" ({row.extra_low_ns:+.0f} to {row.extra_high_ns:+.0f})"
    )


if __name__ == "__main__":
  main()
