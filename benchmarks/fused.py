# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Schedules from a fused module beside those from the beginning.

  python -m benchmarks.fused examples/llama/train.py:train_step

For each set of options that acts after fusion: CPU seconds both ways, and
whether the same runs beside the same; if not, how much longer or shorter the
step is predicted to be from the fused module, under NCCL's own choices.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import deviceless
from lagom_xla.compile import fused as fused_lib
from lagom_xla.compile import job as job_lib
from lagom_xla.compile import load
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import options as options_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import hlo_pb2
from lagom_xla.passes import registry
from lagom_xla.passes.schedule import digest

_Options = dict[str, bool | int | float | str]

_PIPELINED: _Options = {
  "xla_gpu_enable_pipelined_all_gather": True,
  "xla_gpu_enable_pipelined_all_reduce": True,
}
_BASES: tuple[_Options, ...] = ({}, _PIPELINED)
_DOUBLED: _Options = {"xla_gpu_enable_while_loop_double_buffering": True}
_IN_FLIGHT: _Options = {
  "xla_gpu_experimental_parallel_collective_overlap_limit": 4
}
_LATE: tuple[_Options, ...] = (
  {},
  {"xla_gpu_all_gather_combine_threshold_bytes": 0},
  {"xla_gpu_all_gather_combine_threshold_bytes": 2**30},
  {
    "xla_gpu_all_gather_combine_threshold_bytes": 2**30,
    "xla_gpu_reduce_scatter_combine_threshold_bytes": 2**27,
  },
  {"xla_gpu_experimental_enable_heuristic_collective_combining": True},
  _IN_FLIGHT,
  {
    **_IN_FLIGHT,
    "xla_gpu_experimental_collective_start_as_early_as_possible": True,
  },
  _DOUBLED,
  {**_DOUBLED, "xla_gpu_all_gather_combine_threshold_bytes": 2**30},
  {**_DOUBLED, **_IN_FLIGHT},
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
  """One set of options.

  Attributes:
    options: the set, in words.
    begun_cpu_s: of the schedule from the beginning.
    fused_cpu_s: of the schedule from the fused module.
    is_same: whether the same runs beside the same.
    excess: by what share the step is predicted longer from the fused module.
  """

  options: str
  begun_cpu_s: float
  fused_cpu_s: float
  is_same: bool
  excess: float

  def __str__(self) -> str:
    verdict = "the same" if self.is_same else f"another, {self.excess:+.3%}"
    times = f"{self.begun_cpu_s:6.2f} {self.fused_cpu_s:6.2f}"
    return f"{times}  {verdict:16} {self.options}"


def main() -> None:
  """Prints a line for each set of options, and what they come to."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("target")
  parser.add_argument("--cluster", default="1x8xh100")
  parser.add_argument(
    "--arg", action="append", default=[], metavar="NAME=VALUE"
  )
  arguments = parser.parse_args()
  cluster = cluster_lib.parse(arguments.cluster)
  target = load.load(
    arguments.target,
    cluster,
    arguments=dict(text.split("=", 1) for text in arguments.arg),
  )
  assert isinstance(target, target_lib.StepTarget)
  print(
    "CPU s from the beginning and from the fused module, what runs, options"
  )
  rows = []
  for base in _BASES:
    rows += _rows(target.lowered, dict(options_lib.fit(base).options))
  same = sum(row.is_same for row in rows)
  worst = max((abs(row.excess) for row in rows), default=0.0)
  begun_s = statistics.median(row.begun_cpu_s for row in rows)
  fused_s = statistics.median(row.fused_cpu_s for row in rows)
  print(
    f"{len(rows)} schedules, {same} of them the same; others are predicted"
    f" {worst:.3%} off at most; CPU s {begun_s:.2f} and {fused_s:.2f} by median"
  )


def _rows(lowered: lowered_lib.Lowered, base: _Options) -> list[Row]:
  _, fused = fused_lib.from_the_beginning(_job(lowered, base))
  if fused is None:
    print(f"nobody can go on from {_in_words(base)}")
    return []
  rows = []
  for late in _LATE:
    rows.append(_row(lowered, fused, {**base, **late}))
    print(rows[-1], flush=True)
  return rows


def _row(
  lowered: lowered_lib.Lowered,
  fused: hlo_pb2.HloModuleProto,
  options: _Options,
) -> Row:
  begin_s = time.process_time()
  config = config_lib.XlaConfig(options=options)
  expected = compiler.schedule(lowered, config)
  begun_s = time.process_time()
  found = fused_lib.schedule_from_fused(fused, _job(lowered, options))
  fused_s = time.process_time()
  assert found is not None
  module = hlo.Module(found, lowered.cluster.num_devices)
  return Row(
    options=_in_words(options),
    begun_cpu_s=begun_s - begin_s,
    fused_cpu_s=fused_s - begun_s,
    is_same=digest.of(found) == digest.of(expected.proto),
    excess=_step_us(module, lowered) / _step_us(expected, lowered) - 1,
  )


def _job(lowered: lowered_lib.Lowered, options: _Options) -> job_lib.Job:
  """What a worker gets for a schedule."""
  asked = deviceless.asked(
    lowered,
    {compiler.ESTIMATES: True, **options},
    keeps_names=False,
    generates_code=False,
  )
  request = lowered.request(asked, None)
  assert request is not None
  return job_lib.Job(
    name=lowered.name,
    cluster=lowered.cluster,
    request=request,
    stage=registry.Stage.POST_SCHEDULER,
  )


def _step_us(module: hlo.Module, lowered: lowered_lib.Lowered) -> float:
  step = step_lib.of_module(module, lowered.cluster)
  return step.timeline(step.default).step_time_us


def _in_words(options: _Options) -> str:
  return (
    " ".join(
      f"{name.removeprefix('xla_gpu_')}={value}"
      for name, value in options.items()
    )
    or "none"
  )


if __name__ == "__main__":
  main()
