# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Alignment of strands with our costs: DHelix's pairing of a scheduled step.

XLA's scheduler hides collectives behind any kernels, whichever they slow. This
aligns the two strands of each loop body by the time that pairs of a collective
and kernels take together, under the NCCL settings found for XLA's own order. An
order that shortens the replayed step becomes a candidate, with NCCL settings of
its own.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses

from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import timeline as timeline_lib
from lagom_xla.passes import overlap
from lagom_xla.passes import registry
from lagom_xla.passes.schedule import alignment
from lagom_xla.passes.schedule import orders as orders_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import memory_pool

# The most orders to compile, the fastest first.
MAX_COMPILES = 2
# The most schedules to align, the fastest first. Our order may gain most where
# XLA's is bad, and aligning takes a second, compiling a minute.
_MAX_ALIGNED = 8


def search(
  target: target_lib.Target,
  so_far: candidates.Search,
  evaluate: candidates.Evaluate,
  *,
  named: candidates.Named = lambda candidate: candidate,
  progress: candidates.Progress = lambda _: None,
) -> candidates.Search:
  """Adds candidates with aligned strands in the fastest schedules of a search.

  Args:
    target: what is tuned.
    so_far: what was tried so far.
    evaluate: schedules a config and searches its NCCL settings.
    named: gives a candidate XLA's names, which orders refer to.
    progress: called with a short description of each candidate after it.
  """
  peak_bytes = memory_pool.num_bytes(target.cluster.gpu.hbm_bytes)
  found: list[tuple[float, candidates.Candidate]] = []
  for candidate in _fastest(so_far):
    aligned = _aligned(candidate, peak_bytes)
    if aligned is candidate.step:
      continue
    try:
      registry.check_donation(
        candidate.step.analysis.module, "orders instructions"
      )
    except errors.DonationLostError as error:
      config = _ordered(candidate, aligned)
      refused = candidates.Refused(config=config, reason=str(error))
      return so_far.with_candidate(refused)
    found.append((_step_us(aligned, candidate.settings), candidate))
  for _, candidate in sorted(found, key=lambda pair: pair[0])[:MAX_COMPILES]:
    candidate = named(candidate)
    config = _ordered(candidate, _aligned(candidate, peak_bytes))
    so_far = so_far.with_candidate(evaluate(config))
    progress("aligned strands")
  return so_far


def _aligned(candidate: candidates.Candidate, peak_bytes: int) -> step_lib.Step:
  return align(candidate.step, candidate.settings, peak_bytes=peak_bytes)


def _ordered(
  candidate: candidates.Candidate, aligned: step_lib.Step
) -> config_lib.XlaConfig:
  """A candidate's config with the orders of its aligned step."""
  before, after = candidate.step.analysis.module, aligned.analysis.module
  return dataclasses.replace(
    candidate.config, orders=orders_lib.of(before, after)
  )


def _fastest(so_far: candidates.Search) -> list[candidates.Candidate]:
  """The fastest candidates; of those with equal times, the first."""
  by_time: dict[float, candidates.Candidate] = {}
  for candidate in so_far.scheduled:
    by_time.setdefault(candidate.tuned.step_time_us, candidate)
  return [by_time[us] for us in sorted(by_time)][:_MAX_ALIGNED]


def align(
  step: step_lib.Step,
  configuration: step_lib.Configuration,
  *,
  peak_bytes: int | None = None,
) -> step_lib.Step:
  """The step with its strands aligned, wherever that makes it shorter.

  Args:
    step: the step as XLA schedules it.
    configuration: the NCCL setting of each of its tuning keys.
    peak_bytes: the most memory that an order may need by the estimate of
      `memory`, unless XLA's order needs as much; None for no limit.

  Returns:
    The aligned step, or the same step if no other order gains.
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
        orders_lib.check_memory(module, aligned, peak_bytes)
      except errors.ScheduleError:
        continue
    analysis = overlap.analyze(aligned, num_streams=step.analysis.num_streams)
    other = dataclasses.replace(step, analysis=analysis)
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
