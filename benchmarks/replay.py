# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The time that a replay takes, of a whole step and of one overlap.

The steps are the Llama example for eight H100s, up to its schedule: scanned,
unrolled, and the unrolled one several times over. Printed are the one-time
build (analysis, kernel costs, program and first replay), one more replay, and
replays of the overlaps of median and of largest size (kernels + collectives)
under settings that the step has not had yet.

    python -m benchmarks.replay
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import os
import pathlib
import time

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import load
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.search.nccl import problem

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_CLUSTER = "1x8xh100"
_LARGEST = 170_000
_NUM_REPEATS = 5


def main() -> None:
  """The command."""
  print(
    f"{'step':12}{'instructions':>14}{'launches':>10}{'build':>12}"
    f"{'replay':>12}{'per instr.':>12}"
    f"{'median of':>12}{'replay':>12}{'largest of':>12}{'replay':>12}"
  )
  scanned, unrolled = _module("scan"), _module("unroll")
  _measure("scanned", scanned, 1)
  for times in _powers(-(-_LARGEST // unrolled.num_instructions)):
    _measure(f"unrolled x{times}", unrolled, times)


def _module(layers: str) -> hlo.Module:
  step = load.load(
    f"{_ROOT}/examples/llama/train.py:train_step",
    cluster_lib.parse(_CLUSTER),
    arguments={"layers": layers},
  )
  return step.schedule()


def _powers(largest: int) -> Iterator[int]:
  """1, 4, 16 and so on, and the largest."""
  times = 1
  while times < largest:
    yield times
    times *= 4
  yield max(largest, 1)


def _measure(name: str, module: hlo.Module, times: int) -> None:
  begin = time.perf_counter()
  step = step_lib.of_module(module, cluster_lib.parse(_CLUSTER))
  program = step.program * times
  timeline.replay(program, step.costs(step.default))
  build_us = 1e6 * (time.perf_counter() - begin)
  replay_us = _shortest_us(
    lambda: timeline.replay(program, step.costs(step.default))
  )
  by_size = sorted(step.analysis.overlaps, key=lambda o: len(o.kernels))
  largest, median = by_size[-1], by_size[len(by_size) // 2]
  num_instructions = times * module.num_instructions
  print(
    f"{name:12}{num_instructions:14}{_num_launches(program):10}"
    f"{build_us / 1e3:9.1f} ms{replay_us / 1e3:9.2f} ms"
    f"{1e3 * replay_us / num_instructions:9.1f} ns"
    f"{_overlap_text(step, median)}{_overlap_text(step, largest)}"
  )


def _overlap_text(step: step_lib.Step, overlap: overlap_lib.Overlap) -> str:
  sizes = f"{len(overlap.kernels)}+{len(overlap.collectives)}"
  return f"{sizes:>12}{_overlap_us(step, overlap):9.1f} us"


def _shortest_us(run: Callable[[], object]) -> float:
  """The shortest of several runs, the one that was least disturbed."""
  times = []
  for _ in range(_NUM_REPEATS):
    begin = time.perf_counter()
    run()
    times.append(time.perf_counter() - begin)
  return 1e6 * min(times)


def _overlap_us(step: step_lib.Step, overlap: overlap_lib.Overlap) -> float:
  """Median time of a replay under a configuration that is new to the step."""
  program = program_lib.of_overlap(step.analysis, overlap)
  keys = {step.key_of[c.name] for c in overlap.collectives}
  times = []
  for setting_at in range(20):
    changed = {key: _setting(step, key, setting_at) for key in keys}
    configuration = {**step.default, **changed}
    begin = time.perf_counter()
    timeline.replay(program, step.costs(configuration))
    times.append(time.perf_counter() - begin)
  return 1e6 * sorted(times)[len(times) // 2]


def _setting(
  step: step_lib.Step, key: step_lib.Key, position: int
) -> nccl.Setting:
  subspace = problem.subspaces(key, step.cluster)[-1]
  num_chunks = len(subspace.chunk_bytes)
  channels_at, chunk_at = divmod(position, num_chunks)
  return subspace.setting(channels_at % len(subspace.num_channels), chunk_at)


def _num_launches(program: program_lib.Program) -> int:
  return sum(
    _num_launches(part.body) if isinstance(part, program_lib.Loop) else 1
    for part in program
  )


if __name__ == "__main__":
  os.environ.setdefault("JAX_PLATFORMS", "cpu")
  os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
  os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
  main()
