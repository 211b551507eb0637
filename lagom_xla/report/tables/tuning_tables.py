# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables of a tuning: candidates, effects of knobs, gains, what is sure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import rich.table

from lagom_xla import plan as plan_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import rewriting
from lagom_xla.costs import in_words
from lagom_xla.costs import uncertainty
from lagom_xla.flags import environment
from lagom_xla.passes.schedule import memory
from lagom_xla.passes.schedule import orders as orders_lib
from lagom_xla.report.tables import program_tables
from lagom_xla.report.tables import table as table_lib
from lagom_xla.report.wording import compared
from lagom_xla.report.wording import today
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.tuner import tuning as tuning_lib
from lagom_xla.verify import effects as effects_lib

# Of what is applied of a plan, a row each.
_NUM_ROWS: Mapping[plan_lib.Applied, int] = {"flags": 1, "env": 2, "all": 3}


def candidates(tuning: tuning_lib.Tuning) -> rich.table.Table:
  """All configs that were tried, with their predicted step times."""
  table = table_lib.new(
    f"XLA options tried, with {tuning.search.num_predicted:,} more schedules"
    f" predicted and {tuning.num_trials:,} NCCL trials (predicted ms)",
    "options",
    # In two lines, which leaves names of options more of 80 columns.
    "NCCL\ndefaults",
    compared.column(tuning.plan.applied).replace(" ", "\n"),
    "sure\ngain",
    "",
  )
  table.columns[-1].justify = "left"
  table.caption = compared.note(tuning.search.scheduled)
  arms = tuning.search.arms
  has_no_forms = bool(program_tables.why_none(tuning))
  for candidate in tuning.candidates:
    if has_no_forms and program_tables.is_formed(candidate):
      continue
    if isinstance(candidate, candidates_lib.Refused):
      times = ["-"] * (len(table.columns) - 2)
      refusal = compared.refusal(candidate)
      table.add_row(_config(candidate.config, arms), *times, refusal)
      continue
    table.add_row(
      _config(candidate.config, arms),
      in_words.ms(candidate.under_nccl_defaults.step_time_us),
      compared.cell(candidate),
      in_words.ms(_sure_gain_us(tuning, candidate)),
      tuning.search.obstacle(candidate) or "kept",
    )
  return table


def _sure_gain_us(
  tuning: tuning_lib.Tuning, candidate: candidates_lib.Candidate
) -> float:
  default = tuning.search.default.default_times
  return uncertainty.gain(default, candidate.tuned_times).low


def recomputed(tuning: tuning_lib.Tuning) -> str:
  """What XLA computes again for want of memory, and how it was found; or ""."""
  found = []
  default = tuning.search.default
  told = [(environment.options_in_words(), default)]
  if tuning.kept is not default:
    told.append(("the plan", tuning.kept))
  for which, candidate in told:
    module = candidate.runs.analysis.module
    if count := len(memory.recomputed(module)):
      scheduled_us = candidate.step.timeline(candidate.settings).step_time_us
      found.append(
        f"With {which} {in_words.count(count, 'instruction')}"
        f" run{'s' if count == 1 else ''} again, as memory is short:"
        f" {in_words.milliseconds(candidate.tuned.step_time_us)} by the"
        f" compiled module, {in_words.milliseconds(scheduled_us)} by the"
        " schedule."
      )
  return " ".join(found)


def _config(config: config_lib.XlaConfig, arms: Sequence[arms_lib.Arm]) -> str:
  parts = []
  if not config.program.is_as_written:
    parts.append(rewriting.in_words(config.program))
  parts += _options(config.options, arms)
  if config.combine_groups is not None:
    parts.append(f"{len(config.combine_groups)} combine groups")
  if config.scheduler_profile is not None:
    parts.append("scheduler profile")
  if config.orders:
    parts.append(orders_lib.in_words(config.orders))
  return ", ".join(parts) or environment.options_in_words()


def _options(
  options: Mapping[str, object], arms: Sequence[arms_lib.Arm]
) -> list[str]:
  """Options in words: each, or what differs from an arm where that is less."""
  written = [[_option(name, value) for name, value in options.items()]]
  for arm in arms:
    theirs = arm.config.options
    added = [
      _option(name, value)
      for name, value in options.items()
      if name not in theirs or theirs[name] != value
    ]
    left_out = [f"no {_short(name)}" for name in theirs if name not in options]
    written.append([arm.name, *added, *left_out])
  return min(written, key=len)


def _option(name: str, value: object) -> str:
  return f"{_short(name)}={value}"


def _short(name: str) -> str:
  return name.removeprefix("xla_gpu_").removesuffix("_bytes")


def effects(effects: Sequence[effects_lib.Effect]) -> rich.table.Table:
  """What each knob of a plan did."""
  table = table_lib.new(
    "What each knob does, the others in place (predicted ms per step)",
    "knob: value, instead of",
    "without",
    "with",
    "effect",
  )
  table.columns[-1].justify = "left"
  for effect in effects:
    both = (effect.without_us, effect.with_us)
    times = ["-" if us is None else in_words.ms(us) for us in both]
    value, replaces = (
      in_words.option(effect.knob, text)
      for text in (effect.value, effect.replaces)
    )
    text = f"{effect.knob}: {value}, instead of {replaces}"
    table.add_row(text, *times, effect.evidence)
  if not effects:
    table.add_row("nothing", "", "", "the defaults are the best that was found")
  return table


def gains(plan: plan_lib.Plan) -> rich.table.Table:
  """Before and after, by how much of the plan is applied."""
  prediction = plan.prediction
  table = table_lib.new(
    "Predicted step time, by what is applied (not measured)",
    "applied",
    "ms",
    "speed-up",
    "gain in ms, 9 times in 10",
    "",
  )
  table.columns[-1].justify = "left"
  table.add_row(
    f"before: {today.words()}",
    in_words.ms(prediction.default_us),
    f"{1:.4f}x" if prediction.default_us else "-",
  )
  for label, time_us, gain in _rows(plan):
    table.add_row(
      label,
      in_words.ms(time_us),
      f"{prediction.default_us / time_us:.4f}x" if time_us else "-",
      in_words.ms_range(gain.low_us, gain.high_us),
      _verdict(gain),
    )
  return table


def measured_run(plan: plan_lib.Plan) -> str:
  """The run that a plan's costs are measured by; "" if they are predicted."""
  run = plan.profile
  if run is None:
    return ""
  shares = ", ".join(
    f"{share:.0%} of {kind}" for kind, share in run.measured_shares.items()
  )
  began = f" of {run.began_at}" if run.began_at else ""
  return (
    f"Costs rest on the profile {run.name}{began}:"
    f" {in_words.count(run.num_steps, 'step')} of"
    f" {in_words.count(run.num_devices, 'GPU')}. Measured are, by time,"
    f" {shares}; the rest is predicted, and scaled by what was."
  )


def _rows(
  plan: plan_lib.Plan,
) -> list[tuple[str, float, plan_lib.Range]]:
  """What is applied of a plan, each time more, up to all that shall be."""
  prediction = plan.prediction
  everything = "env.sh, with the NCCL tuner plugin"
  if plan.needs_process:
    everything += " and lagom_xla.tune(plan=...)"
  rows = [
    ("XLA_FLAGS", prediction.xla_us, prediction.xla_gain_us),
    (
      "XLA_FLAGS and NCCL_MAX_CTAS",
      prediction.nccl_env_us,
      prediction.nccl_env_gain_us,
    ),
    (everything, prediction.nccl_settings_us, prediction.nccl_settings_gain_us),
  ]
  is_capped = plan.nccl_env and not (plan.nccl_settings or plan.needs_process)
  num_rows = _NUM_ROWS["env" if is_capped else plan.applied]
  *less, (label, time_us, gain) = rows[:num_rows]
  return [*less, (f"after: {label}", time_us, gain)]


def _verdict(gain: plan_lib.Range) -> str:
  if gain.low_us == gain.high_us == 0:
    return "changes nothing"
  return "inside the noise" if gain.low_us <= 0 <= gain.high_us else ""


def settings(plan: plan_lib.Plan) -> rich.table.Table:
  """What each NCCL setting gains, and what it could lose."""
  table = table_lib.new(
    "NCCL settings: what each gains, and what is left of it at worst"
    " (predicted ms per step)",
    "setting of",
    "gain",
    "at worst",
    "if",
  )
  table.columns[-1].justify = "left"
  for entry in plan.nccl_settings:
    key = entry.key
    table.add_row(
      in_words.tuning_key(key.kind, key.num_bytes, key.num_ranks),
      in_words.ms(entry.gain_us),
      in_words.ms(entry.worst_gain_us),
      entry.worst_if,
    )
  return table
