# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Time of replays, of a whole step and of one overlap.

The steps are the Llama example for eight H100s: scanned, unrolled, and the
unrolled one four times over. Prints the time of the one-time build (analysis,
kernel costs, program and first replay), of another replay, and of replays of
the overlaps of median and of largest size (kernels + collectives) under
settings that are new to the step.

    python -m benchmarks.replay
"""

from __future__ import annotations

import pathlib
import time
from typing import Any

from benchmarks import table as table_lib
from benchmarks.searchers import space
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import load
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.passes import overlap as overlap_lib

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_CLUSTER = cluster_lib.parse("1x8xh100")
_NUM_REPEATS = 5
_NUM_SETTINGS = 20


def main() -> None:
  """Runs the command."""
  arguments = table_lib.parser("benchmarks.replay", __doc__).parse_args()
  table = table_lib.Table(
    name="replay",
    title="Times of replays",
    columns=table_lib.columns(
      step="",
      instructions=",d",
      build_ms=".1f",
      replay_ms=".2f",
      ns_each=".1f",
      median_of="",
      median_us=".1f",
      largest_of="",
      largest_us=".1f",
    ),
    rows=[
      _row(layers, times)
      for layers, times in (("scan", 1), ("unroll", 1), ("unroll", 4))
    ],
  )
  table_lib.show([table], arguments.format, arguments.csv)


def _row(layers: str, times: int) -> dict[str, Any]:
  source = f"{_ROOT}/examples/llama/train.py:train_step"
  target = load.load(source, _CLUSTER, arguments={"layers": layers})
  module = target.schedule()
  begin = time.perf_counter()
  step = step_lib.of_module(module, _CLUSTER)
  program = step.program * times
  timeline.replay(program, step.costs(step.default))
  build_us = 1e6 * (time.perf_counter() - begin)
  replays_us = []
  for _ in range(_NUM_REPEATS):
    begin = time.perf_counter()
    timeline.replay(program, step.costs(step.default))
    replays_us.append(1e6 * (time.perf_counter() - begin))
  replay_us = min(replays_us)
  by_size = sorted(step.analysis.overlaps, key=lambda o: len(o.kernels))
  median, largest = by_size[len(by_size) // 2], by_size[-1]
  num_instructions = times * module.num_instructions
  return {
    "step": f"{layers} x{times}",
    "instructions": num_instructions,
    "build_ms": build_us / 1e3,
    "replay_ms": replay_us / 1e3,
    "ns_each": 1e3 * replay_us / num_instructions,
    "median_of": f"{len(median.kernels)}+{len(median.collectives)}",
    "median_us": _overlap_us(step, median),
    "largest_of": f"{len(largest.kernels)}+{len(largest.collectives)}",
    "largest_us": _overlap_us(step, largest),
  }


def _overlap_us(step: step_lib.Step, overlap: overlap_lib.Overlap) -> float:
  """Median time of a replay under configurations that are new to the step."""
  program = program_lib.of_overlap(step.analysis, overlap)
  keys = {step.key_of[c.name] for c in overlap.collectives}
  times_us = []
  for number in range(_NUM_SETTINGS):
    changed = {key: _setting(step, key, number) for key in keys}
    configuration = {**step.default, **changed}
    begin = time.perf_counter()
    timeline.replay(program, step.costs(configuration))
    times_us.append(1e6 * (time.perf_counter() - begin))
  return sorted(times_us)[_NUM_SETTINGS // 2]


def _setting(
  step: step_lib.Step, key: step_lib.Key, number: int
) -> nccl.Setting:
  subspace = space.subspaces(key, step.cluster)[-1]
  channels_at, chunk_at = divmod(number, len(subspace.chunk_bytes))
  return subspace.setting(channels_at % len(subspace.num_channels), chunk_at)


if __name__ == "__main__":
  main()
