# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The best NCCL settings for a schedule that is fixed.

Settings are those whose gain is surest (`robust.py`), and a plan says only what
matters and can act: keys for which NCCL's own choice is as good keep it, and so
do those whose calls NCCL cannot tell from another key's.
"""

from __future__ import annotations

from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.search.nccl import DEFAULT_SEARCHER
from lagom_xla.search.nccl import SEARCHERS
from lagom_xla.search.nccl import robust
from lagom_xla.search.nccl import searcher as searcher_lib

# What all settings together must gain for sure, as a share of the step.
_LEAST_GAIN = 1e-4

Result = robust.Result


def search(
  step: step_lib.Step,
  searcher: searcher_lib.Searcher = SEARCHERS[DEFAULT_SEARCHER],
) -> Result:
  """Searches the NCCL settings of all problems of a step.

  Args:
    step: what is searched.
    searcher: how, such as `Lagom()`.
  """
  default = uncertainty.times(step, step.default)
  least_us = _LEAST_GAIN * default.mean_us
  found = robust.search(
    step, searcher, least_gain_us=least_us / max(len(step.keys), 1)
  )
  tuned = uncertainty.times(step, found.configuration)
  if uncertainty.gain(default, tuned).low <= 0:
    return Result(configuration=step.default, num_trials=found.num_trials)
  return found
