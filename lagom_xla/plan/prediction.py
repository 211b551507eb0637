# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The prediction of a plan: step times and gains, by what is applied of it."""

from __future__ import annotations

import dataclasses
from typing import Literal

from lagom_xla import validation

# What a job applies of a plan: XLA_FLAGS alone; NCCL's environment variables,
# too; or all of it, with the NCCL tuner plugin.
Applied = Literal["flags", "env", "all"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Range:
  """What a figure is between, 9 times in 10, in microseconds.

  Attributes:
    low_us: the lower end.
    high_us: the upper end.
  """

  low_us: float
  high_us: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
  """Predicted step times, in microseconds, each applying more of a plan.

  Ranges come from the cost model's errors on measurements. Those of gains are
  of the difference to `default_us`, in which most errors cancel; below 0 the
  step becomes longer.

  Attributes:
    default_us: with nothing of it.
    xla_us: with the XLA options.
    nccl_env_us: with the XLA options and the NCCL environment variables.
    nccl_settings_us: with all of it but the environment variables: the NCCL
      settings, which take a NCCL tuner plugin, stand in their place. Of a plan
      without settings the variables stay, where nothing acts in the process.
    default_range_us: of `default_us`.
    xla_gain_us: of what the XLA options gain.
    nccl_env_gain_us: of what they and the environment variables gain.
    nccl_settings_gain_us: of what all but the environment variables gains.
  """

  default_us: validation.TimeUs
  xla_us: validation.TimeUs
  nccl_env_us: validation.TimeUs
  nccl_settings_us: validation.TimeUs
  default_range_us: Range
  xla_gain_us: Range
  nccl_env_gain_us: Range
  nccl_settings_gain_us: Range

  def step_us(self, applied: Applied) -> float:
    """The step time with what is applied, in microseconds."""
    if applied == "flags":
      return self.xla_us
    if applied == "env":
      return self.nccl_env_us
    return self.nccl_settings_us

  def gain_us(self, applied: Applied) -> Range:
    """What that gains, in microseconds."""
    if applied == "flags":
      return self.xla_gain_us
    if applied == "env":
      return self.nccl_env_gain_us
    return self.nccl_settings_gain_us
