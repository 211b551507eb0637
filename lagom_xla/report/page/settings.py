# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The settings of a plan, each with a sentence: what it replaces, what it does.

What an XLA option replaces is what XLA runs with today, XLA_FLAGS included, as
the installed jaxlib tells.
"""

from __future__ import annotations

from collections.abc import Iterator

from lagom_xla import plan as plan_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import rewriting
from lagom_xla.costs import in_words
from lagom_xla.passes.schedule import orders as orders_lib
from lagom_xla.report.page import story as story_lib
from lagom_xla.report.wording import compared
from lagom_xla.tuner import tuning as tuning_lib
from lagom_xla.verify import effects as effects_lib
from lagom_xla.verify import nccl_effects

_ms = in_words.milliseconds


def of_tuning(tuning: tuning_lib.Tuning) -> tuple[story_lib.Setting, ...]:
  """All settings of a tuning's plan."""
  return tuple(_all(tuning))


def config_in_words(config: config_lib.XlaConfig) -> str:
  """What a config sets, in a line."""
  parts = [
    f"{name.removeprefix('xla_gpu_')}={in_words.option(name, str(value))}"
    for name, value in config.options.items()
  ]
  parts += [value for _, value in _beyond_options(config)]
  return ", ".join(parts) or "as it runs today"


def _all(tuning: tuning_lib.Tuning) -> Iterator[story_lib.Setting]:
  plan = tuning.plan
  effects = {effect.knob: effect for effect in tuning.effects}
  seen = {knob: _seen(effect) for knob, effect in effects.items()}
  for name, value in plan.xla.options.items():
    yield story_lib.Setting(
      name=name,
      value=in_words.option(name, str(value)),
      sentence=_sentence(_replaces(name, effects.get(name)), seen.get(name)),
    )
  for name, value in _beyond_options(plan.xla):
    acts = "acts where the step is wrapped in lagom_xla.tune(plan=...)"
    yield story_lib.Setting(
      name=name, value=value, sentence=_sentence(acts, seen.get(name))
    )
  if not plan.xla.is_default:
    yield _xla_together(tuning)
  for name, value in plan.nccl_env.items():
    instead = "instead of NCCL's own, where no tuner plugin can be loaded"
    yield story_lib.Setting(
      name=name, value=value, sentence=_sentence(instead, seen.get(name))
    )
  for entry in plan.nccl_settings:
    yield _nccl(tuning, entry)


def _replaces(name: str, effect: effects_lib.Effect | None) -> str:
  value = effect.replaces if effect else effects_lib.replaced_value(name)
  return f"instead of {in_words.option(name, value)}"


def _seen(effect: effects_lib.Effect) -> str:
  """What an effect was seen to be, and the step without and with it."""
  if effect.without_us is None or effect.with_us is None:
    return effect.evidence
  return (
    f"{effect.evidence}; the step takes {_ms(effect.without_us)} without it and"
    f" {_ms(effect.with_us)} with it"
  )


def _xla_together(tuning: tuning_lib.Tuning) -> story_lib.Setting:
  """What all of the above does: options act in pairs, so only that adds up."""
  return story_lib.Setting(
    name="all of these for XLA",
    value="together",
    sentence=(
      "With nothing else set the step takes"
      f" {_ms(compared.xla_us(tuning))} with them and"
      f" {_ms(tuning.timeline_before.step_time_us)} without."
    ),
  )


def _sentence(*parts: str | None) -> str:
  """Parts as one sentence."""
  text = "; ".join(part for part in parts if part)
  return f"{text[:1].upper()}{text[1:]}."


def _beyond_options(
  config: config_lib.XlaConfig,
) -> Iterator[tuple[str, str]]:
  if not config.program.is_as_written:
    yield "form of the program", rewriting.in_words(config.program)
  if config.combine_groups is not None:
    yield (
      "combine groups",
      f"{in_words.count(config.combine_groups, 'group')} of ours",
    )
  if config.scheduler_profile is not None:
    yield "scheduler profile", "costs with contention, for XLA's scheduler"
  if config.orders:
    yield "order", orders_lib.in_words(config.orders)


def _nccl(
  tuning: tuning_lib.Tuning, entry: plan_lib.NcclSetting
) -> story_lib.Setting:
  """A NCCL setting: its collectives' time alone and the step, with and without.

  Alone they may well take longer: they leave SMs and memory to kernels.
  """
  step, key = tuning.kept.runs, entry.key
  lone_us = [
    step.executions[key] * step.predict(key, setting).time_us
    for setting in (entry.default, entry.setting)
  ]
  old, new = (
    nccl_effects.setting_in_words(entry, setting)
    for setting in (entry.default, entry.setting)
  )
  gained_us = entry.gain_us
  step_us = tuning.timeline_after.step_time_us
  sentence = (
    f"instead of {old}; these collectives take"
    f" {_ms(lone_us[0])} per step alone without it and"
    f" {_ms(lone_us[1])} with it, and the step"
    f" {_ms(step_us + gained_us)} without it and"
    f" {_ms(step_us)} with it, a gain of {_ms(gained_us)}"
    f" (of which {_ms(entry.worst_gain_us)} are left"
    f" {in_words.supposing(entry.worst_if)})"
  )
  return story_lib.Setting(
    name=in_words.tuning_key(key.kind, key.num_bytes, key.num_ranks),
    value=new,
    sentence=_sentence(sentence),
  )
