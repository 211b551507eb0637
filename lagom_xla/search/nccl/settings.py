# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The best NCCL settings for a schedule that is fixed.

Settings are those whose gain is surest (`robust.py`), and a plan says only what
matters and can act: keys for which NCCL's own choice is as good keep it, and so
do those whose calls NCCL cannot tell from another key's.
"""

from __future__ import annotations

import dataclasses

from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.search.nccl import DEFAULT_SEARCHER
from lagom_xla.search.nccl import SEARCHERS
from lagom_xla.search.nccl import robust
from lagom_xla.search.nccl import searcher as searcher_lib
from lagom_xla.search.nccl import without_plugin

# What all settings together must gain for sure, as a share of the step.
_LEAST_GAIN = 1e-4


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Result:
  """What a search found.

  Attributes:
    configuration: the surest settings; NCCL's own where none are surely better.
    default_times: step times under NCCL's own choices, in every scenario.
    tuned_times: step times under `configuration`, in every scenario.
    num_trials: configurations that were profiled.
  """

  configuration: step_lib.Configuration
  default_times: uncertainty.Times
  tuned_times: uncertainty.Times
  num_trials: int


def search(
  step: step_lib.Step,
  searcher: searcher_lib.Searcher = SEARCHERS[DEFAULT_SEARCHER],
) -> Result:
  """Searches the NCCL settings of all problems of a step.

  Args:
    step: what is searched.
    searcher: how, such as `Lagom()`; or that no plugin applies any.
  """
  default = uncertainty.times(step, step.default)
  if isinstance(searcher, without_plugin.WithoutPlugin):
    configuration = searcher.configuration(step)
    return Result(
      configuration=configuration,
      default_times=default,
      tuned_times=uncertainty.times(step, configuration),
      num_trials=0,
    )
  least_us = _LEAST_GAIN * default.mean_us / max(len(step.keys), 1)
  found = robust.search(step, searcher, least_gain_us=least_us)
  configuration = found.configuration
  tuned = uncertainty.times(step, configuration)
  # Problems are replayed apart, and the step as a whole.
  if uncertainty.gain(default, tuned).low <= 0:
    configuration, tuned = step.default, default
  return Result(
    configuration=configuration,
    default_times=default,
    tuned_times=tuned,
    num_trials=found.num_trials,
  )
