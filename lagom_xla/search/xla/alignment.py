# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Alignment of strands with our costs: DHelix's pairing of a scheduled step.

XLA's scheduler hides collectives wherever there are kernels to hide them; which
kernels a collective slows down it does not ask. Here the two strands of each
loop's body are aligned by what pairs of them take together, and an order is
kept if the replayed step gains by it.
"""

from __future__ import annotations

from collections.abc import Callable

from lagom_xla import errors
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import timeline as timeline_lib
from lagom_xla.passes.schedule import alignment
from lagom_xla.passes.schedule import reordering


def align(
  step: step_lib.Step,
  configuration: step_lib.Configuration,
  *,
  peak_bytes: int | None = None,
) -> step_lib.Step:
  """The step with its strands aligned, wherever that gains.

  Args:
    step: as XLA schedules it.
    configuration: the NCCL setting of each of its tuning keys.
    peak_bytes: the most memory that an order may need by the estimate of
      `live_bytes`, unless XLA's order needs as much; None allows any.

  Returns:
    The step itself where no other order gains.
  """
  for body in step.analysis.sequences:
    if not any(i.id in step.analysis.started_by for i in body.instructions):
      continue
    module = step.analysis.module
    aligned = alignment.align(
      step.analysis,
      module.computations[body.id],
      _block_us(step, configuration),
    )
    if aligned is None:
      continue
    if peak_bytes is not None:
      try:
        reordering.check_memory(module, aligned, peak_bytes)
      except errors.ScheduleError:
        continue
    other = step.rescheduled(aligned)
    if _step_us(other, configuration) < _step_us(step, configuration):
      step = other
  return step


def _step_us(
  step: step_lib.Step, configuration: step_lib.Configuration
) -> float:
  return step.timeline(configuration).step_time_us


def _block_us(
  step: step_lib.Step, configuration: step_lib.Configuration
) -> Callable[[int | None, tuple[int, ...]], float]:
  costs = step.costs(configuration)
  analysis = step.analysis

  def block_us(start: int | None, kernels: tuple[int, ...]) -> float:
    started = () if start is None else analysis.started_by[start]
    program = (
      *map(program_lib.Start, started),
      *(program_lib.Launch(analysis.kernels[id_]) for id_ in kernels),
      *map(program_lib.Wait, started),
    )
    return timeline_lib.replay(program, costs).step_time_us

  return block_us
