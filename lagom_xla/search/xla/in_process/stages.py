# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The stages of a search in the process, each from the best so far.

Forms come first, as they change what there is to overlap; orders come last, as
they are those of one schedule.
"""

from __future__ import annotations

import dataclasses

from lagom_xla import errors
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import registry
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import predictions
from lagom_xla.search.xla import turns
from lagom_xla.search.xla.in_process import alignment
from lagom_xla.search.xla.in_process import feedback
from lagom_xla.search.xla.in_process import groups as groups_lib
from lagom_xla.search.xla.in_process import slices
from lagom_xla.search.xla.in_process import strands

# Larger modules keep XLA's groups: with every collective alone, XLA schedules
# them for minutes.
_MAX_GROUPED_INSTRUCTIONS = 50_000


def search(
  target: target_lib.Target,
  so_far: candidates.Search,
  evaluate: candidates.Evaluate,
  *,
  named: candidates.Named,
  in_turn: turns.InTurn,
  progress: candidates.Progress,
) -> candidates.Search:
  """Goes on from a search of options.

  Args:
    target: what is searched.
    so_far: what was tried so far, with the program as written.
    evaluate: schedules and searches a config.
    named: gives a candidate XLA's names, by which profiles and orders go.
    in_turn: begins configs ahead.
    progress: called with a few words after each candidate.
  """
  so_far = strands.search(
    target, so_far, evaluate, in_turn=in_turn, progress=progress
  )
  so_far = slices.search(target, so_far, evaluate, progress=progress)
  so_far = _with_groups(target, so_far, evaluate)
  progress("combine groups")
  so_far = feedback.search(so_far, evaluate, named=named, progress=progress)
  return alignment.search(
    target, so_far, evaluate, named=named, progress=progress
  )


def _with_groups(
  target: target_lib.Target,
  so_far: candidates.Search,
  evaluate: candidates.Evaluate,
) -> candidates.Search:
  """The search with the best combine groups tried, or why there are none."""
  best = so_far.best
  module = best.step.analysis.module
  alone = dataclasses.replace(best.config, combine_groups=())
  try:
    _check_can_group(module)
    apart = target.schedule(alone)
  except (errors.CompileError, errors.DonationLostError) as error:
    return so_far.with_candidate(
      candidates.Refused(config=alone, reason=str(error))
    )
  chosen = groups_lib.search(
    apart,
    target.cluster,
    max_predictions=predictions.max_predictions(apart),
  )
  so_far = dataclasses.replace(
    so_far, num_predicted=so_far.num_predicted + chosen.num_predicted
  )
  config = dataclasses.replace(best.config, combine_groups=chosen.groups)
  return so_far.with_candidate(evaluate(config))


def _check_can_group(module: hlo.Module) -> None:
  """Checks that groups of our own are worth scheduling a module for.

  Raises:
    CompileError: it is too large.
    DonationLostError: it donates, and this JAX would forget that.
  """
  if module.num_instructions > _MAX_GROUPED_INSTRUCTIONS:
    raise errors.CompileError(
      f"The module has {module.num_instructions:,} instructions; groups are"
      f" chosen in modules of up to {_MAX_GROUPED_INSTRUCTIONS:,}."
    )
  registry.check_donation(module, "sets combine groups")
