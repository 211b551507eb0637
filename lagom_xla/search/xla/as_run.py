# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The step that runs: a schedule's, unless XLA changes that.

A compile that ends at the schedule is all that most candidates need. Where
memory is short XLA rematerializes after it, which only a compile to the end
shows: the step then takes longer, by what is computed and gathered again.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses

from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import nccl_channels
from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import memory
from lagom_xla.search.xla import memory_slop

Scheduled = Callable[[config_lib.XlaConfig], step_lib.Step]


def scheduled(
  target: target_lib.Target,
  config: config_lib.XlaConfig = config_lib.DEFAULT,
) -> step_lib.Step:
  """The step as XLA schedules it with a config, under what caps its channels.

  Raises:
    CompileError: XLA refuses it.
  """
  return of_schedule(target.schedule(config), target, config)


def of_schedule(
  module: hlo.Module, target: target_lib.Target, config: config_lib.XlaConfig
) -> step_lib.Step:
  """The same, of the schedule."""
  most = nccl_channels.most(config.options)
  return step_lib.of_module(module, target.cluster, max_channels=most)


class Steps:
  """Steps of a target as XLA schedules them, each of which is read once."""

  def __init__(self, target: target_lib.Target):
    self._target = target
    self._known: list[tuple[config_lib.XlaConfig, step_lib.Step]] = []

  def __call__(self, config: config_lib.XlaConfig) -> step_lib.Step:
    """What `scheduled` gives."""
    for known, step in self._known:
      if known == config:
        return step
    step = scheduled(self._target, config)
    self._known.append((config, step))
    return step


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """A step as it runs.

  Attributes:
    step: the step.
    peak_bytes: device memory at its peak; None where it was not compiled to the
      end, or XLA does not say.
  """

  step: step_lib.Step
  peak_bytes: int | None = None


def step(
  target: target_lib.Target,
  config: config_lib.XlaConfig,
  scheduled: step_lib.Step,
) -> step_lib.Step:
  """The step of `run`."""
  return run(target, config, scheduled).step


def run(
  target: target_lib.Target,
  config: config_lib.XlaConfig,
  scheduled: step_lib.Step,
) -> Run:
  """The step that runs under a config, and the memory that it is known to need.

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
    return Run(step=scheduled)
  is_short = memory.is_short_of_memory(
    scheduled.analysis.module,
    target.cluster.gpu.hbm_bytes,
    memory_slop.percent(config.options),
  )
  if not is_short:
    return Run(step=scheduled)
  compiled = target.compile(config)
  runs = of_compiled(scheduled, compiled.module)
  return Run(step=runs, peak_bytes=compiled.peak_bytes)


def warning(target: target_lib.Target, peak_bytes: int | None) -> str:
  """What to say of a step that its GPUs do not hold; "" for nothing.

  Args:
    target: the step.
    peak_bytes: what it is known to need, as in `Run`.
  """
  hbm_bytes = target.cluster.gpu.hbm_bytes
  if peak_bytes is None or peak_bytes <= hbm_bytes:
    return ""
  return (
    f"{target.name} needs {in_words.gigabytes(peak_bytes)} of memory at its"
    f" peak, and a GPU of {target.cluster.name} has"
    f" {in_words.gigabytes(hbm_bytes)}: it does not run there as it is. Its"
    " times are those of GPUs that had as much."
  )


def of_compiled(
  scheduled: step_lib.Step, compiled: hlo.Module
) -> step_lib.Step:
  """The step of a compiled module if XLA rematerializes in it."""
  if not memory.recomputed(compiled):
    return scheduled
  return step_lib.of_module(
    compiled, scheduled.cluster, max_channels=scheduled.max_channels
  )
