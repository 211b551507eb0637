# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What only the process that compiles can be told, and no launcher.

Two things, tried in this order on top of the best XLA options:

*Combine groups* (`regrouping.py`) take a pass in XLA's pipeline.

*Scheduler feedback* (`apply/xla/fdo.py`) hands XLA's scheduler our costs, which
know of contention and of the NCCL settings, in place of its own. The costs are
those of a schedule, which changes with them, so this goes on for a few rounds,
from the best schedule so far, until one brings nothing.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses

from lagom_xla import errors
from lagom_xla.compile import compiler as compile_lib
from lagom_xla.compile import scheduler_profile
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import donation
from lagom_xla.passes import hlo
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import groups as regrouping

# Schedules made from our costs, at most.
_NUM_ROUNDS = 3
NUM_CANDIDATES = 1 + _NUM_ROUNDS

# Instructions in all predictions of groups: a large module gets fewer.
_MAX_PREDICTED_INSTRUCTIONS = 1_000_000
# Larger modules keep XLA's groups: with every collective alone, XLA schedules
# them for minutes.
_MAX_GROUPED_INSTRUCTIONS = 50_000

Progress = Callable[[str], None]


def search(
  target: target_lib.Target,
  found: candidates.Search,
  *,
  progress: Progress = lambda _: None,
) -> candidates.Search:
  """Goes on from a search over XLA options.

  Args:
    target: what to tune.
    found: what the options gave.
    progress: called with a few words after each candidate.
  """
  found = _with_groups(target, found)
  progress("combine groups")
  for round_number in range(1, _NUM_ROUNDS + 1):
    before = found.best
    found = _with_feedback(target, found)
    progress(f"scheduler feedback, round {round_number}")
    if found.best is before:
      break
  return found


def max_predictions(module: hlo.Module, max_instructions: int) -> int:
  """Predictions that have this many instructions together, or a few."""
  return max(max_instructions // module.num_instructions, 4)


def _with_groups(
  target: target_lib.Target, found: candidates.Search
) -> candidates.Search:
  best = found.best
  size = best.step.analysis.module.num_instructions
  if size > _MAX_GROUPED_INSTRUCTIONS:
    reason = (
      f"The module has {size:,} instructions; groups are chosen in modules of"
      f" up to {_MAX_GROUPED_INSTRUCTIONS:,}."
    )
    return found.with_(
      candidates.Refused(options=best.options, groups=(), reason=reason)
    )
  try:
    donation.check(best.step.analysis.module, "sets combine groups")
    apart = target.schedule({**best.options, **compile_lib.COST_ESTIMATES}, ())
  except (errors.CompileError, errors.DonationLostError) as error:
    return found.with_(
      candidates.Refused(options=best.options, groups=(), reason=str(error))
    )
  chosen = regrouping.search(
    apart,
    target.cluster,
    max_predictions=max_predictions(apart, _MAX_PREDICTED_INSTRUCTIONS),
  )
  found = dataclasses.replace(
    found, num_predicted=found.num_predicted + chosen.num_predicted
  )
  return found.with_(candidates.evaluate(target, best.options, chosen.groups))


def _with_feedback(
  target: target_lib.Target, found: candidates.Search
) -> candidates.Search:
  best = found.best
  profile = scheduler_profile.profile(best.step, best.configuration)
  try:
    scheduler_profile.check_reaches_xla()
  except errors.ProfileError as error:
    return found.with_(
      candidates.Refused(
        options=best.options,
        groups=best.groups,
        profile=profile,
        reason=str(error),
      )
    )
  return found.with_(
    candidates.evaluate(target, best.options, best.groups, profile)
  )
