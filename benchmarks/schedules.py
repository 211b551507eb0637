# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares schedules made by shortcuts with those of XLA's full pipeline.

    python -m benchmarks.schedules fused TARGET ...
    python -m benchmarks.schedules left_out TARGET ... [--cluster=1x8xh100]

`fused`: with options that act after fusion, compiles from an already fused
module (lagom_xla/compile/fused.py), or from the beginning. `left_out`: with
XLA's defaults, and with pipelined and double-buffered loops, compiles without
or with the passes that are useless without a GPU
(lagom_xla/compile/deviceless.py). Prints the CPU seconds of both; whether the
kernels and overlaps are the same (for `left_out`, the names and order of
instructions, without bitcasts); and the difference of the predicted step times,
under NCCL's own choices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
import functools
import statistics
import time
from unittest import mock

from benchmarks import table as table_lib
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

_Options = Mapping[str, bool | int | float | str]

_PIPELINED: _Options = {
  "xla_gpu_enable_pipelined_all_gather": True,
  "xla_gpu_enable_pipelined_all_reduce": True,
}
_DOUBLED: _Options = {"xla_gpu_enable_while_loop_double_buffering": True}
_IN_FLIGHT: _Options = {
  "xla_gpu_experimental_parallel_collective_overlap_limit": 4
}
_GATHERS = "xla_gpu_all_gather_combine_threshold_bytes"
# Options that act after fusion.
_LATE: tuple[_Options, ...] = (
  {},
  {_GATHERS: 0},
  {_GATHERS: 2**30},
  {_GATHERS: 2**30, "xla_gpu_reduce_scatter_combine_threshold_bytes": 2**27},
  {"xla_gpu_experimental_enable_heuristic_collective_combining": True},
  _IN_FLIGHT,
  {
    **_IN_FLIGHT,
    "xla_gpu_experimental_collective_start_as_early_as_possible": True,
  },
  _DOUBLED,
  {**_DOUBLED, _GATHERS: 2**30},
  {**_DOUBLED, **_IN_FLIGHT},
)
_LOOPS: _Options = {
  "xla_gpu_enable_pipelined_all_gather": True,
  "xla_gpu_enable_pipelined_reduce_scatter": True,
  **_DOUBLED,
}


def fused(target: target_lib.Target) -> Iterator[table_lib.Row]:
  """Compares schedules from fused modules with those from the beginning."""
  assert isinstance(target, target_lib.StepTarget)
  lowered = target.lowered
  for base in ({}, _PIPELINED):
    base = options_lib.fit(base).options
    _, fused_module = fused_lib.from_the_beginning(_job(lowered, base))
    if fused_module is None:
      print(f"cannot continue from a fused module with {_in_words(base)}")
      continue
    for late in _LATE:
      options = {**base, **late}
      yield _row(
        target,
        options,
        functools.partial(compiler.schedule, lowered),
        functools.partial(_from_fused, fused_module, lowered),
        lambda module: digest.of(module.proto),
      )


def _from_fused(
  module: hlo_pb2.HloModuleProto,
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig,
) -> hlo.Module:
  found = fused_lib.schedule_from_fused(module, _job(lowered, config.options))
  assert found is not None
  return hlo.Module(found, lowered.cluster.num_devices)


def _job(lowered: lowered_lib.Lowered, options: _Options) -> job_lib.Job:
  """The job of a worker for a schedule."""
  asked = deviceless.asked(
    lowered,
    {compiler.ESTIMATES: True, **options},
    keeps_names=False,
    generates_code=False,
  )
  request = lowered.request(asked)
  assert request is not None
  return job_lib.Job(
    name=lowered.name,
    cluster=lowered.cluster,
    request=request,
    stage=registry.Stage.POST_SCHEDULER,
  )


def left_out(target: target_lib.Target) -> Iterator[table_lib.Row]:
  """Compares schedules without the useless passes with those of all passes."""
  target.schedule()  # Loads and lowers once, outside of the measured times.

  def all_of_it(config: config_lib.XlaConfig) -> hlo.Module:
    with mock.patch.object(
      deviceless, "asked", lambda lowered, options, **_: options
    ):
      return target.schedule(config)

  for options in ({}, _LOOPS):
    options = options_lib.fit(options).options
    yield _row(target, options, all_of_it, target.schedule, _names)


def _names(module: hlo.Module) -> list[str]:
  """Names of the instructions in order, without bitcasts."""
  return [
    instruction.name
    for computation_id, computation in module.computations.items()
    if computation_id in module.executions
    for instruction in computation.instructions
    if instruction.opcode != "bitcast"
  ]


_WAYS = {"fused": fused, "left_out": left_out}
_Schedule = Callable[[config_lib.XlaConfig], hlo.Module]


def _row(
  target: target_lib.Target,
  options: _Options,
  usual: _Schedule,
  quick: _Schedule,
  identity: Callable[[hlo.Module], object],
) -> table_lib.Row:
  config = config_lib.XlaConfig(options=options)
  begin_s = time.process_time()
  expected = usual(config)
  usual_s = time.process_time()
  found = quick(config)
  quick_s = time.process_time()
  is_same = identity(found) == identity(expected)
  steps = (step_lib.of_module(m, target.cluster) for m in (found, expected))
  found_us, expected_us = (s.timeline(s.default).step_time_us for s in steps)
  return {
    "target": target.name,
    "usual_cpu_s": usual_s - begin_s,
    "quick_cpu_s": quick_s - usual_s,
    "schedule": "the same" if is_same else "another",
    "excess": found_us / expected_us - 1,
    "options": _in_words(options),
  }


def _in_words(options: _Options) -> str:
  words = (f"{k.removeprefix('xla_gpu_')}={v}" for k, v in options.items())
  return " ".join(words) or "none"


def _table(way: str, rows: list[table_lib.Row]) -> table_lib.Table:
  num_same = sum(row["schedule"] == "the same" for row in rows)
  worst = max((abs(row["excess"]) for row in rows), default=0.0)
  medians_s = [
    statistics.median([row[field] for row in rows] or [0.0])
    for field in ("usual_cpu_s", "quick_cpu_s")
  ]
  return table_lib.Table(
    name=way,
    title=f"Schedules, {way.replace('_', ' ')}",
    columns=table_lib.columns(
      target="",
      usual_cpu_s=".2f",
      quick_cpu_s=".2f",
      schedule="",
      excess="+.3%",
      options="",
    ),
    rows=rows,
    notes=(
      f"{len(rows)} schedules, {num_same} of them the same; predicted"
      f" {worst:.3%} off at most; CPU s {medians_s[0]:.2f} and"
      f" {medians_s[1]:.2f} by median.",
    ),
  )


def main() -> None:
  """Runs the command."""
  parser = table_lib.parser("benchmarks.schedules", __doc__)
  parser.add_argument("way", choices=_WAYS)
  parser.add_argument("targets", nargs="+", metavar="TARGET")
  parser.add_argument("--cluster", default="1x8xh100")
  parser.add_argument(
    "--arg", action="append", default=[], metavar="NAME=VALUE"
  )
  arguments = parser.parse_args()
  cluster = cluster_lib.parse(arguments.cluster)
  given = dict(text.split("=", 1) for text in arguments.arg)
  rows: list[table_lib.Row] = []
  for name in arguments.targets:
    target = load.load(name, cluster, arguments=given)
    rows += _WAYS[arguments.way](target)
  table = _table(arguments.way, rows)
  table_lib.show([table], arguments.format, arguments.csv)


if __name__ == "__main__":
  main()
