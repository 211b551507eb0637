# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The step that runs: a schedule's, unless XLA changes that.

A compile that ends at the schedule is all that most candidates need. Where
memory is short XLA rematerializes after it, which only a compile to the end
shows: the step then takes longer, by what is computed and gathered again.
"""

from __future__ import annotations

from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import rematerialization
from lagom_xla.passes.schedule import memory_limit

_SLOP = "xla_gpu_memory_limit_slop_factor"


def step(
  target: target_lib.Target,
  config: config_lib.XlaConfig,
  scheduled: step_lib.Step,
) -> step_lib.Step:
  """The step that runs under a config.

  Compiles to the end if the schedule is short of memory, where that is possible
  for the target.

  Args:
    target: what is compiled.
    config: with which.
    scheduled: the step as XLA schedules it with that config.

  Raises:
    CompileError: XLA scheduled it but cannot compile it to the end.
  """
  if target.obstacle:
    return scheduled
  slop_percent = config.options.get(_SLOP, memory_limit.DEFAULT_SLOP_PERCENT)
  is_short = rematerialization.is_short_of_memory(
    scheduled.analysis.module,
    target.cluster.gpu.hbm_bytes,
    float(slop_percent),
  )
  if not is_short:
    return scheduled
  return of_compiled(scheduled, target.compile(config).module)


def of_compiled(
  scheduled: step_lib.Step, compiled: hlo.Module
) -> step_lib.Step:
  """The step of a compiled module if XLA rematerializes in it."""
  if not rematerialization.recomputed(compiled):
    return scheduled
  return step_lib.of_module(compiled, scheduled.cluster)
