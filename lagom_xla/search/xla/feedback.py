# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Scheduler feedback: our costs in place of XLA's own estimates.

XLA's scheduler hides collectives by its own estimates of how long kernels and
collectives take alone. Our costs include how they slow each other under the
plan's NCCL settings: the time of a kernel beside the collectives that it
overlaps, and the time of a collective with its setting, as slowed.

These costs belong to one schedule. XLA makes another from them, with other
overlaps and so other costs. So this repeats for a few rounds, each from the
fastest schedule so far, until a round gains nothing.

Rounds start from the best candidate, and also from the fastest program with
strands or slices if that is another one. Such a program has more to overlap,
but XLA overlaps it by its own estimates or, before Hopper, not at all: the
scheduler is off there until it gets a profile. On 64 A40s a GPT of 25e9
parameters takes 17.0 s with strands, 17.1 s as written, and 16.4 s after one
round. So a form need not be the fastest before feedback, only able to win.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
import dataclasses
from typing import TypeGuard

from lagom_xla import errors
from lagom_xla.compile import scheduler_profile
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.search.xla import candidates

# The most schedules to make from our costs, per start.
MAX_ROUNDS = 3
MAX_COMPILES = 2 * MAX_ROUNDS


def search(
  so_far: candidates.Search,
  evaluate: candidates.Evaluate,
  *,
  named: candidates.Named = lambda candidate: candidate,
  progress: candidates.Progress = lambda _: None,
) -> candidates.Search:
  """Adds rounds of feedback to a search.

  Args:
    so_far: what was tried so far.
    evaluate: schedules a config and searches its NCCL settings.
    named: gives a candidate XLA's names, which its profile refers to.
    progress: called with a short description of each round after it.
  """
  for quickest in _starts(so_far):
    for round_number in range(1, MAX_ROUNDS + 1):
      found = _round(quickest, evaluate, named)
      so_far = so_far.with_candidate(found)
      progress(f"scheduler feedback, round {round_number}")
      if not _is_quicker(found, quickest):
        break
      quickest = found
  return so_far


def _starts(so_far: candidates.Search) -> list[candidates.Candidate]:
  """The best, and the fastest candidate with a form if that can win."""
  best = so_far.best
  formed = [c for c in so_far.scheduled if _has_form(c)]
  quickest = min(formed, key=candidates.tuned_us, default=best)
  if _has_form(best) and not _is_quicker(quickest, best):
    return [best]  # The others are no faster.
  can_win = quickest is not best and candidates.can_win(quickest, so_far)
  return [best, quickest] if can_win else [best]


def _has_form(candidate: candidates.Candidate) -> bool:
  return not candidate.config.program.is_as_written


def _is_quicker(
  found: candidates.Candidate | candidates.Refused,
  before: candidates.Candidate,
) -> TypeGuard[candidates.Candidate]:
  if isinstance(found, candidates.Refused):
    return False
  most_us = (1 - candidates.LEAST_GAIN) * candidates.tuned_us(before)
  return candidates.tuned_us(found) <= most_us


def _round(
  start: candidates.Candidate,
  evaluate: candidates.Evaluate,
  named: candidates.Named,
) -> candidates.Candidate | candidates.Refused:
  start = named(start)
  config = dataclasses.replace(
    start.config, scheduler_profile=profile(start.step, start.settings)
  )
  try:
    scheduler_profile.check_reaches_xla()
  except errors.ProfileError as error:
    return candidates.Refused(config=config, reason=str(error))
  return evaluate(config)


def profile(step: step_lib.Step, configuration: step_lib.Configuration) -> str:
  """The profile with the costs of a step's kernels and collectives.

  Args:
    step: the step as it is scheduled now.
    configuration: the NCCL setting of each of its tuning keys.
  """
  return scheduler_profile.encode(_costs_us(step, configuration))


def _costs_us(
  step: step_lib.Step, configuration: step_lib.Configuration
) -> Mapping[str, float]:
  """The scheduler's name of an instruction -> microseconds per run."""
  analysis = step.analysis
  timeline = step.timeline(configuration)
  lost_us = collections.defaultdict[str, float](float, timeline.delay_us)
  for (kernel_name, _), slowdown_us in timeline.slowdown_us.items():
    lost_us[kernel_name] += slowdown_us
  names: dict[int, str] = {}
  costs = collections.defaultdict[str, float](float)
  for computation in analysis.sequences:
    for instruction in computation.instructions:
      name = instruction.metadata.scheduling_name or instruction.name
      names[instruction.id] = name
      if _is_free(analysis, computation, instruction):
        costs[name] = 0.0
  for kernel in analysis.kernels.values():
    alone_us = step.kernel_cost(kernel).time_us
    lost = lost_us[kernel.name] / max(kernel.executions, 1)
    costs[names[kernel.instruction_id]] += alone_us + lost
  for collective in analysis.collectives:
    key = step.key_of[collective.name]
    alone_us = step.cost_of(collective, configuration[key]).time_us
    lost = lost_us[collective.name] / max(collective.executions, 1)
    costs[names[collective.start_id]] += alone_us + lost
  for copy in analysis.copies.values():
    costs[names[copy.start_id]] += step.copy_cost(copy).time_us
  return costs


def _is_free(
  analysis: overlap_lib.Analysis,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
) -> bool:
  """Whether XLA asks for the cost of an instruction that takes no time.

  These are the dones of copies, of asynchronous kernels and of collectives in
  XLA's own kernels, whose starts have all the time, and the allocation of a
  stack on the host.
  """
  if instruction.id in analysis.awaited_copies:
    return True
  if instruction.opcode == "async-done":
    start = computation.instructions[
      computation.position[instruction.operand_ids[0]]
    ]
    return start.id in analysis.kernels or any(
      "fusion" in analysis.module.computations[id_].opcodes
      for id_ in start.called_computation_ids
    )
  return instruction.custom_call_target == kernels_lib.ALLOCATION
