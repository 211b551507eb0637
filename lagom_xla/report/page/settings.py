# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The settings of a plan, each with a sentence: what it replaces, what it does.

What an XLA option replaces is what XLA runs with today, XLA_FLAGS included, as
the installed jaxlib tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import functools
import os

from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla import tuner
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import rewriting
from lagom_xla.costs import nccl
from lagom_xla.flags import debug_options
from lagom_xla.flags import probe
from lagom_xla.passes.schedule import orders as orders_lib
from lagom_xla.report import instructions as instructions_lib
from lagom_xla.report.page import story as story_lib

_ms = instructions_lib.milliseconds


def of_tuning(tuning: tuner.Tuning) -> tuple[story_lib.Setting, ...]:
  """All settings of a tuning's plan."""
  return tuple(_all(tuning))


def config_in_words(config: config_lib.XlaConfig) -> str:
  """What a config sets, in a line."""
  parts = [
    f"{name.removeprefix('xla_gpu_')}={_shown(value)}"
    for name, value in config.options.items()
  ]
  parts += [value for _, value in _beyond_options(config)]
  return ", ".join(parts) or "as it runs today"


def _all(tuning: tuner.Tuning) -> Iterator[story_lib.Setting]:
  plan = tuning.plan
  evidence = {effect.knob: effect.evidence for effect in tuning.effects}
  for name, value in plan.xla.options.items():
    yield story_lib.Setting(
      name=name,
      value=_of_option(name, value),
      sentence=_sentence(f"instead of {_replaced(name)}", evidence.get(name)),
    )
  for name, value in _beyond_options(plan.xla):
    acts = "acts where the step is wrapped in lagom_xla.tune(plan=...)"
    yield story_lib.Setting(
      name=name, value=value, sentence=_sentence(acts, evidence.get(name))
    )
  if not plan.xla.is_default:
    yield _xla_together(tuning)
  for name, value in plan.nccl_env.items():
    instead = "instead of NCCL's own, where no tuner plugin can be loaded"
    yield story_lib.Setting(
      name=name, value=value, sentence=_sentence(instead, evidence.get(name))
    )
  for entry in plan.nccl_settings:
    yield _nccl(tuning, entry)


def _xla_together(tuning: tuner.Tuning) -> story_lib.Setting:
  """What all of the above does: options act in pairs, so only that adds up."""
  before_us = tuning.timeline_before.step_time_us
  after_us = tuning.kept.under_nccl_defaults.step_time_us
  return story_lib.Setting(
    name="all of these for XLA",
    value="together",
    sentence=(
      f"Under NCCL's own choices the step takes {_ms(after_us)} with them and"
      f" {_ms(before_us)} without."
    ),
  )


def _sentence(*parts: str | None) -> str:
  """Parts as one sentence."""
  text = "; ".join(part for part in parts if part)
  return f"{text[:1].upper()}{text[1:]}."


def _shown(value: object) -> str:
  return str(value).lower() if isinstance(value, bool) else str(value)


def _of_option(name: str, value: object) -> str:
  """An option's value in words, with MB where it is a number of bytes."""
  if name.endswith("_bytes") and isinstance(value, int) and value:
    return f"{value} ({instructions_lib.megabytes(value)})"
  return _shown(value) or "nothing"


def _replaced(name: str) -> str:
  """What XLA runs with today, in words."""
  try:
    value = _today().get(name)
  except (errors.OptionsError, errors.ProbeError) as error:
    return f"what is not known, as {error}"
  return "nothing" if value is None else _of_option(name, value)


@functools.cache
def _today() -> Mapping[str, object]:
  """The options of the installed jaxlib, with XLA_FLAGS as they are here."""
  (answer,) = probe.ask([os.environ.get("XLA_FLAGS", "")])
  return debug_options.values(answer.compile_options)


def _beyond_options(
  config: config_lib.XlaConfig,
) -> Iterator[tuple[str, str]]:
  if not config.program.is_as_written:
    yield "form of the program", rewriting.in_words(config.program)
  if config.combine_groups is not None:
    yield "combine groups", f"{len(config.combine_groups)} groups of ours"
  if config.scheduler_profile is not None:
    yield "scheduler profile", "costs with contention, for XLA's scheduler"
  if config.orders:
    yield "order", orders_lib.in_words(config.orders)


def _nccl(
  tuning: tuner.Tuning, entry: plan_lib.NcclSetting
) -> story_lib.Setting:
  """A NCCL setting: its collectives' time alone and the step, with and without.

  Alone they may well take longer: they leave SMs and memory to kernels.
  """
  step, key = tuning.kept.runs, entry.key
  runs = step.executions[key]
  lone_us = [
    runs * step.predict(key, setting).time_us
    for setting in (entry.default, entry.setting)
  ]
  gained_us = entry.gain_us
  step_us = tuning.timeline_after.step_time_us
  sentence = (
    f"instead of {_setting(entry.default)}; these collectives take"
    f" {_ms(lone_us[0])} per step alone without it and"
    f" {_ms(lone_us[1])} with it, and the step"
    f" {_ms(step_us + gained_us)} without it and"
    f" {_ms(step_us)} with it, a gain of {_ms(gained_us)}"
    f" (of which {_ms(entry.worst_gain_us)} are left"
    f" {_if(entry.worst_if)})"
  )
  return story_lib.Setting(
    name=(
      f"{key.kind} of {instructions_lib.megabytes(key.num_bytes)} over"
      f" {key.num_ranks} GPUs"
    ),
    value=_setting(entry.setting),
    sentence=_sentence(sentence),
  )


def _if(scenario: str) -> str:
  return scenario if scenario.startswith("as ") else f"if {scenario}"


def _setting(setting: nccl.Setting) -> str:
  channels = "channel" if setting.num_channels == 1 else "channels"
  return (
    f"{setting.algorithm}/{setting.protocol}, {setting.num_channels}"
    f" {channels}, chunks of {setting.chunk_bytes / 1024:,.0f} KiB"
  )
