# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""One channel cap for all collectives of a process.

Settings per tuning key take a NCCL tuner plugin. Without one there is still
NCCL_MAX_CTAS, the most channels that any collective may take: the one
environment variable that frees SMs for kernels. It is chosen by replaying the
step under every cap; `surest` also asks what is left of the gain where the
model is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
import math

from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty

# Caps from the best one up, each so many times the one before, of which the
# surest is looked for.
_GROWTH = 1.5


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Cap:
  """The best cap of a step.

  Attributes:
    max_channels: the cap; None where NCCL's own choices are best.
    configuration: NCCL's choices under it.
    step_time_us: the predicted step time under it.
  """

  max_channels: int | None
  configuration: step_lib.Configuration
  step_time_us: float


def none(step: step_lib.Step) -> Cap:
  """No cap."""
  return Cap(
    max_channels=None,
    configuration=step.default,
    step_time_us=step.timeline(step.default).step_time_us,
  )


def best(step: step_lib.Step) -> Cap:
  """The cap with the shortest step, the highest of equals; or none."""
  kept = none(step)
  most = max((s.num_channels for s in step.default.values()), default=0)
  for max_channels in range(most - 1, 0, -1):
    configuration = capped(step.default, max_channels)
    step_time_us = step.timeline(configuration).step_time_us
    if step_time_us < kept.step_time_us:
      kept = Cap(
        max_channels=max_channels,
        configuration=configuration,
        step_time_us=step_time_us,
      )
  return kept


def surest(step: step_lib.Step) -> Cap:
  """The cap with the largest assured gain; or none."""
  kept = none(step)
  fastest = best(step).max_channels
  if fastest is None:
    return kept
  default = uncertainty.times(step, step.default)
  kept_us = 0.0
  most = max(s.num_channels for s in step.default.values())
  for max_channels in _rising(fastest, most):
    configuration = capped(step.default, max_channels)
    found = uncertainty.times(step, configuration)
    assured_us = uncertainty.gain(default, found).low
    if assured_us > kept_us:
      kept_us = assured_us
      kept = Cap(
        max_channels=max_channels,
        configuration=configuration,
        step_time_us=found.mean_us,
      )
  return kept


def capped(
  configuration: step_lib.Configuration, max_channels: int
) -> step_lib.Configuration:
  """What NCCL makes of a configuration under a cap."""
  return {
    key: dataclasses.replace(
      setting, num_channels=min(setting.num_channels, max_channels)
    )
    for key, setting in configuration.items()
  }


def _rising(least: int, most: int) -> Iterator[int]:
  """Caps from the least on, below `most`."""
  max_channels = least
  while max_channels < most:
    yield max_channels
    max_channels = math.ceil(max_channels * _GROWTH)
