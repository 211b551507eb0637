# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a job without the NCCL tuner plugin sets: one channel cap, or nothing.

Settings per tuning key need the plugin. A job without it can still cap the
channels of all collectives, with NCCL_MAX_CTAS or an XLA option, which frees
SMs for kernels. The step is replayed under each cap; `surest` also checks that
the cap gains if the model is wrong. Schedules for jobs without the plugin are
compared under their caps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import dataclasses
import functools

from lagom_xla.costs import nccl
from lagom_xla.costs import scenario as scenario_lib
from lagom_xla.costs import settings as settings_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty

# The part of the model that matters most to caps.
_SLOWED_BY_CAPS = "few_channels"
# A cap must shorten the step by at least this share.
_LEAST_GAIN = 1e-3
# Steps whose best cap is cached: more than a search compiles.
_MAX_KNOWN = 64


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Cap:
  """The best cap of a step.

  Attributes:
    max_channels: the cap; None if NCCL's own choices are best.
    configuration: NCCL's choices under the cap.
    step_time_us: the predicted step time under the cap.
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


@functools.lru_cache(maxsize=_MAX_KNOWN)
def best(step: step_lib.Step) -> Cap:
  """The cap with the shortest step, or no cap; the highest cap wins a tie."""
  kept = none(step)
  for max_channels in _caps(step):
    configuration = capped(step, max_channels)
    step_time_us = step.timeline(configuration).step_time_us
    if step_time_us < kept.step_time_us:
      kept = Cap(
        max_channels=max_channels,
        configuration=configuration,
        step_time_us=step_time_us,
      )
  return kept


def surest(
  step: step_lib.Step,
  limit: settings_lib.Limit = settings_lib.by_variable,
) -> Cap:
  """The cap with the largest assured gain, or no cap.

  The highest cap wins a tie. Caps that shorten the step by less than a
  thousandth are not considered.

  Args:
    step: the step that runs.
    limit: applies the cap to a setting.
  """
  default = uncertainty.times(step, step.default)
  kept, kept_us = none(step), 0.0
  for max_channels in _caps(step):
    configuration = capped(step, max_channels, limit)
    if not _may_gain(step, default, configuration, kept_us):
      continue
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
  step: step_lib.Step,
  max_channels: int,
  limit: settings_lib.Limit = settings_lib.by_variable,
) -> step_lib.Configuration:
  """NCCL's own choices for a step under a cap."""
  return {
    key: setting if key in step.untuned else limit(key, setting, max_channels)
    for key, setting in step.default.items()
  }


def inherited(
  step: step_lib.Step, caps: Mapping[str, int]
) -> step_lib.Configuration:
  """NCCL's own choices for a step under caps in NCCL's variables."""

  def limit(
    key: step_lib.Key, setting: nccl.Setting, unused: int
  ) -> nccl.Setting:
    del unused
    if (most := caps.get("NCCL_MAX_CTAS")) is not None:
      setting = settings_lib.by_variable(key, setting, most)
    if (most := caps.get("NCCL_MAX_NCHANNELS")) is not None:
      setting = settings_lib.by_other_variable(key, setting, most)
    return setting

  return capped(step, 0, limit)


def _caps(step: step_lib.Step) -> Iterator[int]:
  """All caps that take channels from any collective, the highest first."""
  most = max((s.num_channels for s in step.default.values()), default=0)
  yield from range(most - 1, 0, -1)


def _may_gain(
  step: step_lib.Step,
  default: uncertainty.Times,
  configuration: step_lib.Configuration,
  more_than_us: float,
) -> bool:
  """Whether the assured gain may exceed `more_than_us`.

  The assured gain is at most the gain in any scenario, so two replays rule out
  most caps without a replay in every scenario.
  """
  least_us = max(_LEAST_GAIN * default.mean_us, more_than_us)
  telling = [
    (scenario, before_us)
    for scenario, before_us in default.by_scenario.items()
    if scenario.part == _SLOWED_BY_CAPS
  ]
  return all(
    before_us - step.under(scenario).timeline(configuration).step_time_us
    > least_us
    for scenario, before_us, least_us in (
      (scenario_lib.AS_PREDICTED, default.mean_us, least_us),
      *((scenario, us, more_than_us) for scenario, us in telling),
    )
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithoutPlugin:
  """What a job that loads no tuner plugin sets in NCCL.

  Attributes:
    limit: applies a cap on the channels of all collectives to a setting; one
      cap is chosen per step. None if the job sets no cap.
  """

  limit: settings_lib.Limit | None

  def configuration(self, step: step_lib.Step) -> step_lib.Configuration:
    """The settings that a step's collectives run with."""
    if self.limit is None:
      return step.default
    return surest(step, self.limit).configuration


def chooses_cap(without_plugin: WithoutPlugin | None) -> bool:
  """Whether the job sets a cap on channels."""
  return without_plugin is not None and without_plugin.limit is not None
