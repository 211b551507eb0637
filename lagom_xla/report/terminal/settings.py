# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The settings of a plan for the terminal: what each replaces and gains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lagom_xla import plan as plan_lib
from lagom_xla.costs import in_words
from lagom_xla.report.terminal import screen
from lagom_xla.report.wording import compared
from lagom_xla.tuner import tuning as tuning_lib
from lagom_xla.verify import effects as effects_lib
from lagom_xla.verify import nccl_effects

_ms = in_words.milliseconds


def sections(tuning: tuning_lib.Tuning) -> Iterator[screen.Section]:
  """What a tuning's plan sets, by what applies it."""
  plan = tuning.plan
  seen = {effect.knob: effect for effect in tuning.effects}
  if plan.xla.is_default:
    pass
  elif plan.needs_process:
    items = [_effect(e) for e in tuning.effects if _is_of_xla(e, plan)]
    yield _group(_words_of_xla(tuning), items)
  else:
    items = [
      _option(name, value, seen.get(name))
      for name, value in plan.xla.options.items()
    ]
    yield _group(_words_of_xla(tuning), _by_gain(items))
  if plan.nccl_settings:
    entries = sorted(plan.nccl_settings, key=lambda entry: -entry.gain_us)
    items = [(entry.gain_us, _nccl(entry, plan)) for entry in entries]
    yield _group(
      "NCCL's settings (env.sh, with the tuner plugin):"
      f" {_change(compared.xla_us(tuning), plan.planned_us)}",
      items,
    )
  for name, value in plan.nccl_env.items():
    change = _change(plan.prediction.xla_us, plan.prediction.nccl_env_us)
    head = screen.wrapped(f"{name}={value}{_where(name, plan)}: {change}")
    yield screen.Section(head=head)


def of_effects(
  effects: Sequence[effects_lib.Effect], plan: plan_lib.Plan
) -> screen.Section:
  """What each knob of a plan was seen to do, those that do nothing first."""
  ordered = sorted(effects, key=lambda e: (e.acted, -(e.gain_us or 0.0)))
  return screen.Section(
    head=("What each part does, the others in place:",) if ordered else (),
    items=tuple(_effect(e, _where(e.knob, plan))[1] for e in ordered),
    least=sum(not effect.acted for effect in effects),
  )


_Item = tuple[float, tuple[str, ...]]


def _group(words: str, items: Sequence[_Item]) -> screen.Section:
  return screen.Section(
    head=screen.wrapped(words),
    items=tuple(lines for _, lines in items),
    least=1,
  )


def _by_gain(items: Sequence[_Item]) -> Sequence[_Item]:
  return sorted(items, key=lambda item: -item[0])


def _words_of_xla(tuning: tuning_lib.Tuning) -> str:
  """What is set of XLA, who publishes it, and what all of it gains."""
  plan = tuning.plan
  change = _change(tuning.timeline_before.step_time_us, compared.xla_us(tuning))
  words = "XLA_FLAGS (env.sh)"
  if plan.needs_process:
    words = "XLA's options and the program, by lagom_xla.tune(plan=...)"
  for arm in tuning.search.arms:
    if tuning.search.found(arm.config) is tuning.kept:
      words += f", those of {arm.name}"
  return f"{words}: {change}"


def _is_of_xla(effect: effects_lib.Effect, plan: plan_lib.Plan) -> bool:
  keys = {
    in_words.tuning_key(e.key.kind, e.key.num_bytes, e.key.num_ranks)
    for e in plan.nccl_settings
  }
  return effect.knob not in {*plan.nccl_env, *keys}


def _change(before_us: float, after_us: float) -> str:
  return f"{in_words.ms(before_us)} -> {_ms(after_us)}"


def _option(
  name: str, value: object, effect: effects_lib.Effect | None
) -> _Item:
  if effect is not None:
    return _effect(effect)
  text = (
    f"{name}={in_words.option(name, str(value))} instead of"
    f" {in_words.option(name, effects_lib.replaced_value(name))}; not checked"
  )
  return 0.0, screen.wrapped(text, indent=2)


def _where(knob: str, plan: plan_lib.Plan) -> str:
  """Where a variable of NCCL's acts, if the plan has more for other places."""
  if knob not in plan.nccl_env or not (
    plan.nccl_settings or plan.needs_process
  ):
    return ""
  return ", where no plugin can be loaded"


def _effect(effect: effects_lib.Effect, where: str = "") -> _Item:
  """A knob: its value, what that replaces, gains, and does."""
  value = in_words.option(effect.knob, effect.value)
  is_named = effect.knob.startswith(("xla_", "NCCL_"))
  text = f"{effect.knob}{'=' if is_named else ': '}{value}"
  if effect.replaces or is_named:
    text += f" instead of {in_words.option(effect.knob, effect.replaces)}"
  text += where
  if effect.without_us is not None and effect.with_us is not None:
    text += f": {_change(effect.without_us, effect.with_us)}"
  gain_us = effect.gain_us or 0.0
  seen, *_ = effect.evidence.split("; ")
  return gain_us, screen.wrapped(f"{text}; {seen}", indent=2)


def _nccl(entry: plan_lib.NcclSetting, plan: plan_lib.Plan) -> tuple[str, ...]:
  key = entry.key
  own, new = (
    nccl_effects.setting_in_words(entry, setting)
    for setting in (entry.default, entry.setting)
  )
  change = _change(plan.planned_us + entry.gain_us, plan.planned_us)
  text = (
    f"{in_words.tuning_key(key.kind, key.num_bytes, key.num_ranks)}: {new}"
    f" instead of {own}: {change}; gains"
    f" {_ms(entry.worst_gain_us)} at worst"
  )
  return screen.wrapped(text, indent=2)
