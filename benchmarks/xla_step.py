# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's Llama 3.1 8B benchmark module on eight H100s, as published.

openxla/xla#26196 gives 1,359 ms per step with the scheduler of its time, and
1,318 ms when collectives start as early as they can. That scheduler is today's
latency-hiding scheduler without the speed-of-light estimator; the early starts
need more than one collective in flight. The module is compiled here for the
same GPUs, ahead of time, and replayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import pathlib

from benchmarks import groups as groups_lib
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo

_DEFAULT_MS = 1359.0
_EARLY_MS = 1318.0

_SCHEDULER: Mapping[str, bool | int] = {
  "xla_gpu_enable_latency_hiding_scheduler": True,
  "xla_gpu_enable_analytical_sol_latency_estimator": False,
}
_EARLY: Mapping[str, bool | int] = {
  "xla_gpu_experimental_collective_start_as_early_as_possible": True,
  "xla_gpu_experimental_parallel_collective_overlap_limit": 2,
}


def groups(path: pathlib.Path) -> Iterator[groups_lib.Group]:
  """Step times, and what early starts gain."""
  module = hlo.load(path)
  default_ms = _predict_ms(module, _SCHEDULER)
  early_ms = _predict_ms(module, {**_SCHEDULER, **_EARLY})
  yield groups_lib.of_comparisons(
    "H100 step: from the module",
    [
      groups_lib.Comparison(
        what="default schedule, ms", measured=_DEFAULT_MS, predicted=default_ms
      ),
      groups_lib.Comparison(
        what="early starts, ms", measured=_EARLY_MS, predicted=early_ms
      ),
    ],
  )
  yield groups_lib.of_comparisons(
    "H100 step: what early starts gain",
    [
      groups_lib.Comparison(
        what="default less early, ms",
        measured=_DEFAULT_MS - _EARLY_MS,
        predicted=default_ms - early_ms,
      )
    ],
  )


def _predict_ms(module: hlo.Module, options: Mapping[str, bool | int]) -> float:
  cluster = cluster_lib.parse("1x8xh100")
  target = target_lib.of_module(module, cluster, name=module.name)
  scheduled = target.schedule(config_lib.XlaConfig(options=options))
  step = step_lib.of_module(scheduled, cluster)
  return step.timeline(step.default).step_time_us / 1e3
