# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The settings of a plan, and of the candidates tried for it, in words.

The terminal and the page show the same settings, with the value that each
replaces and its effect. Settings are grouped by what applies them. An XLA
option replaces today's value, from XLA_FLAGS or the installed jaxlib's default.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
import dataclasses

from lagom_xla import plan as plan_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import rewriting
from lagom_xla.costs import in_words
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.schedule import orders as orders_lib
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import memory_pool
from lagom_xla.tuner import tuning as tuning_lib
from lagom_xla.verify import effects as effects_lib

_ms = in_words.milliseconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """A setting of a plan.

  Attributes:
    name: the setting.
    value: its value.
    does: the replaced value and the effect, a clause after name and value.
    more: further text, if there is room.
    gain_us: gain per step, in microseconds.
  """

  name: str
  value: str
  does: str
  more: str = ""
  gain_us: float = 0.0

  @property
  def line(self) -> str:
    """The setting as one text, without `more`."""
    joint = "=" if self.name.startswith(("xla_", "NCCL_")) else ": "
    return f"{self.name}{joint}{self.value}{self.does}"

  @property
  def sentence(self) -> str:
    """The replaced value and the effect, as a sentence."""
    text = f"{self.does}{self.more}".lstrip(" ,:;")
    return f"{text[:1].upper()}{text[1:]}."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
  """Settings that are applied together, the largest gain first."""

  name: str
  change: str
  settings: tuple[Setting, ...]


def groups(tuning: tuning_lib.Tuning) -> Iterator[Group]:
  """The settings of a tuning's plan."""
  plan = tuning.plan
  effects = {effect.knob: effect for effect in tuning.effects}

  def settings_of(parts: Iterable[tuple[str, str]]) -> list[Setting]:
    return [
      of_effect(effects[name]) if name in effects else _unchecked(name, value)
      for name, value in parts
    ]

  def group(
    name: str, before_us: float, after_us: float, settings: Iterable[Setting]
  ) -> Group:
    return Group(
      name=name,
      change=_change(before_us, after_us),
      settings=tuple(sorted(settings, key=lambda setting: -setting.gain_us)),
    )

  if not plan.xla.is_default:
    name = "XLA_FLAGS (env.sh)"
    if plan.needs_process:
      name = "XLA's options and the program, by lagom_xla.tune(plan=...)"
    for arm in tuning.search.arms:
      if tuning.search.found(arm.config) is tuning.kept:
        name += f", those of {arm.name}"
    options = ((name, str(v)) for name, v in plan.xla.options.items())
    yield group(
      name,
      tuning.timeline_before.step_time_us,
      _xla_us(tuning),
      settings_of([*parts(plan.xla), *options]),
    )
  if plan.nccl_settings:
    yield group(
      "NCCL's settings (env.sh, with the tuner plugin)",
      _xla_us(tuning),
      plan.planned_us,
      [_of_nccl(entry, tuning) for entry in plan.nccl_settings],
    )
  if plan.nccl_env:
    yield group(
      f"NCCL's environment (env.sh){where(plan)}",
      plan.prediction.xla_us,
      plan.prediction.nccl_env_us,
      settings_of(plan.nccl_env.items()),
    )


def _xla_us(tuning: tuning_lib.Tuning) -> float:
  """The step time with a plan's XLA config, without its NCCL settings.

  For jobs that set only XLA_FLAGS, it includes XLA's cap on channels.
  """
  if tuning.plan.applied == "flags":
    return tuning.plan.planned_us
  return tuning.kept.under_nccl_defaults.step_time_us


def where(plan: plan_lib.Plan) -> str:
  """Where the plan's NCCL variables apply; "" if everywhere."""
  is_all = not (plan.nccl_settings or plan.needs_process)
  return "" if is_all else ", where no plugin can be loaded"


def of_effect(effect: effects_lib.Effect, acts: str = "") -> Setting:
  """A setting with its verified effect, and where it applies."""
  does = acts
  is_named = effect.knob.startswith(("xla_", "NCCL_"))
  if effect.replaces or is_named:
    replaced = in_words.option(effect.knob, effect.replaces)
    does = f" instead of {replaced}{acts}"
  if effect.is_as_today:
    does = f", as today{acts}"
  if effect.without_us is not None and effect.with_us is not None:
    does += f": {_change(effect.without_us, effect.with_us)}"
  first, *others = effect.evidence.split("; ")
  return Setting(
    name=effect.knob,
    value=in_words.option(effect.knob, effect.value),
    does=f"{does}; {first}",
    more="".join(f"; {other}" for other in others),
    gain_us=effect.gain_us or 0.0,
  )


def _unchecked(name: str, value: str) -> Setting:
  """A setting of a plan whose search was stopped."""
  does = "; not checked"
  if name.startswith("xla_"):
    replaced = in_words.option(name, effects_lib.replaced_value(name))
    does = f" instead of {replaced}{does}"
  return Setting(name=name, value=in_words.option(name, value), does=does)


def _of_nccl(entry: plan_lib.NcclSetting, tuning: tuning_lib.Tuning) -> Setting:
  """An NCCL setting, with step time and lone time without and with it.

  Its collectives may be slower alone, because they leave SMs and memory
  bandwidth to kernels.
  """
  step, key = tuning.kept.runs, entry.key
  own, new = (
    effects_lib.setting_in_words(entry, setting)
    for setting in (entry.default, entry.setting)
  )
  alone = _change(
    *(
      step.executions[key] * step.predict(key, setting).time_us
      for setting in (entry.default, entry.setting)
    )
  )
  after_us = tuning.plan.planned_us
  return Setting(
    name=in_words.tuning_key(key.kind, key.num_bytes, key.num_ranks),
    value=new,
    does=(
      f" instead of {own}: {_change(after_us + entry.gain_us, after_us)}; gains"
      f" at least {_ms(entry.worst_gain_us)}"
    ),
    more=f" (worst case: {entry.worst_if}); alone: {alone}",
    gain_us=entry.gain_us,
  )


def _change(before_us: float, after_us: float) -> str:
  return f"{in_words.ms(before_us)} -> {_ms(after_us)}"


def peak_memory(tuning: tuning_lib.Tuning) -> tuple[str, str]:
  """Peak memory today, and a text with the plan's peak and the limit."""
  before, after = tuning.peak_bytes_before, tuning.peak_bytes_after
  if before is None or after is None:
    return "-", "unknown: the step was not compiled fully"
  device_bytes = tuning.plan.cluster.gpu.hbm_bytes
  words = f"of {memory_pool.of_a_gpu(device_bytes)}"
  if after > memory_pool.num_bytes(device_bytes):
    words += ": it does not fit"
  if not tuning.plan.is_default:
    words = f"{in_words.gigabytes(after)} with the plan, {words}"
  return in_words.gigabytes(before), words


def refusal(reason: str, program: form_lib.Form = form_lib.AS_WRITTEN) -> str:
  """Why a config was refused, in one line, without the form's own name."""
  first, *_ = reason.splitlines() or [""]
  named = f" cannot have {rewriting.in_words(program)} ("
  _, _, inside = first.removesuffix(".").partition(named)
  return f"refused: {inside.removesuffix(')') or first.removesuffix('.')}"


def parts(config: config_lib.XlaConfig) -> Iterator[tuple[str, str]]:
  """A config's settings besides options: pairs of name and value in words."""
  if not config.program.is_as_written:
    yield "program", rewriting.in_words(config.program)
  if config.combine_groups is not None:
    groups = in_words.count(config.combine_groups, "group")
    yield "combine groups", f"{groups} of ours"
  if config.scheduler_profile is not None:
    yield "scheduler profile", "costs with contention, for XLA's scheduler"
  if config.orders:
    yield "order", orders_lib.in_words(config.orders)


def config_in_words(
  config: config_lib.XlaConfig, arms: Sequence[arms_lib.Arm] = ()
) -> str:
  """A config's settings, in one line."""
  written = []
  for name, theirs in (("", {}), *((a.name, a.config.options) for a in arms)):
    own = config.options
    changed = [option for option in own if own[option] != theirs.get(option)]
    added = [f"{o}={in_words.option(o, str(own[o]))}" for o in changed]
    left_out = [f"no {option}" for option in theirs if option not in own]
    said = [text.replace("xla_gpu_", "", 1) for text in (*added, *left_out)]
    written.append([*filter(None, [name]), *said])
  words = [*min(written, key=len), *(value for _, value in parts(config))]
  return ", ".join(words) or "as it runs today"
