# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables of everything, as -v shows them: of a step and of a tuning.

Every time shown is predicted, and says so: nothing here has run on a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import math

import rich.console
import rich.table

from lagom_xla import cluster as cluster_lib
from lagom_xla import plan as plan_lib
from lagom_xla.compile import rewriting
from lagom_xla.costs import in_words
from lagom_xla.costs import lower_bound
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.costs.replay import timeline
from lagom_xla.explain import explaining
from lagom_xla.flags import environment
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes.program import form
from lagom_xla.report import instructions
from lagom_xla.report import layout
from lagom_xla.report import notes
from lagom_xla.report import results
from lagom_xla.report import tried
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.tuner import tuning as tuning_lib
from lagom_xla.verify import effects as effects_lib


def arms_table(
  search: candidates_lib.Search, applied: plan_lib.Applied = "all"
) -> rich.table.Table:
  """Arms: what runs today, what others publish, and the plan beside them.

  A user sees what the recipe that they use is worth on their own step: its time
  under NCCL's own choices, as they run it, and with searched settings.
  """
  table = layout.new_table(
    "What you could run without a plan (predicted ms per step)",
    "arm",
    "NCCL defaults",
    "over today",
    tried.column(applied),
    "",
  )
  table.columns[-1].justify = "left"
  today_us = search.default.under_nccl_defaults.step_time_us

  def add(name: str, found: tried.Arm | tried.Candidate, words: str) -> None:
    times = ["-", "-", "-"]
    if (us := found.step_time_us) is not None:
      tuned = tried.cell(found.tuned_step_time_us)
      times = [in_words.ms(us), f"{us / today_us - 1:+.1%}", tuned]
    table.add_row(name, *times, words)

  for arm in tried.arms(search):
    words = "not tried"
    if arm.failure is not None:
      words = tried.refusal(arm.failure)
    elif arm.step_time_us is not None:
      is_fastest = arm.xla_options == search.fastest_arm.config.options
      words = "fastest" if is_fastest else ""
    add(arm.name, arm, words)
  (kept,) = [c for c in tried.candidates(search) if not c.obstacle]
  add("the plan", kept, "")
  return table


def arms_notes(search: candidates_lib.Search) -> list[str]:
  """A line for each thing to know of arms, the names of those it is true of."""
  arms = tried.arms(search)
  by_note: dict[str, list[str]] = {}
  for arm in arms:
    if arm.source:
      by_note[f"It is from {arm.source}."] = [arm.name]
    for note in arm.notes:
      by_note.setdefault(note, []).append(arm.name)
  told = [f"{', '.join(names)}: {note}" for note, names in by_note.items()]
  not_searched = tried.note(arms)
  return [not_searched, *told] if not_searched else told


# Sentences on what a form did, and on what it left alone, that are shown.
_MOST_SENTENCES = 4


def forms_table(tuning: tuning_lib.Tuning) -> rich.table.Table:
  """The best step in each form, what was rewritten for it, and what was not."""
  table = layout.new_table(
    "Forms of the program (predicted ms of the best candidate in each)",
    "form",
    "step",
    "exposed",
    "",
  )
  table.columns[0].no_wrap = True
  table.columns[-1].justify = "left"
  for alike in _by_form(tuning).values():
    words = rewriting.in_words(alike[0].config.program)
    found = [c for c in alike if isinstance(c, candidates_lib.Candidate)]
    if not found:
      refused = alike[0]
      assert isinstance(refused, candidates_lib.Refused)
      table.add_row(words, "-", "-", refused.reason)
      continue
    best = min(found, key=candidates_lib.tuned_us)
    table.add_row(
      words,
      in_words.ms(best.tuned.step_time_us),
      in_words.ms(best.tuned.total_exposed_us),
      "\n".join(_sentences(best.outcome)),
    )
  return table


def has_forms(tuning: tuning_lib.Tuning) -> bool:
  """Whether any form but the program as written was alike."""
  return len(_by_form(tuning)) > 1


def why_no_forms(tuning: tuning_lib.Tuning) -> str:
  """Why the target can have no other form, in a sentence; "" where it can."""
  as_written = tuning.search.default.outcome.refusals
  refused = all(
    isinstance(candidate, candidates_lib.Refused)
    for candidate in tuning.candidates
    if is_formed(candidate)
  )
  if not (as_written and refused):
    return ""
  reasons = "; ".join(f"{r.where}: {r.reason}" for r in as_written)
  return f"There are no other forms of the program. {reasons}."


def is_formed(
  candidate: candidates_lib.Candidate | candidates_lib.Refused,
) -> bool:
  """Whether it is of another form than the program as written."""
  return not candidate.config.program.is_as_written


def _by_form(
  tuning: tuning_lib.Tuning,
) -> dict[object, list[candidates_lib.Candidate | candidates_lib.Refused]]:
  """All that was tried, by the form of the program."""
  found: dict[
    object, list[candidates_lib.Candidate | candidates_lib.Refused]
  ] = {}
  for candidate in tuning.candidates:
    key = rewriting.key(candidate.config.program)
    found.setdefault(key, []).append(candidate)
  return found


def _sentences(outcome: form.Outcome) -> Sequence[str]:
  refusals = [f"Left alone: {r.where}: {r.reason}." for r in outcome.refusals]
  return [*_first(outcome.actions), *_first(refusals)]


def _first(sentences: Sequence[str]) -> Sequence[str]:
  shown = list(sentences[:_MOST_SENTENCES])
  if len(sentences) > len(shown):
    shown.append(f"And {len(sentences) - len(shown)} more of these.")
  return shown


# Shares of a collective's time that are covered by kernels, from which on it
# counts as hidden, and up to which as exposed (xprof's async overlap analysis).
_HIDDEN_FROM = 0.9
_EXPOSED_UP_TO = 0.1

_MOST_ROWS = 24


def totals_table(step: step_lib.Step) -> rich.table.Table:
  """Bytes and runs of collectives, by kind."""
  table = layout.new_table(
    "Collectives per GPU and step",
    "kind",
    "instructions",
    "executions",
    "operands MB",
    "results MB",
  )
  for kind, total in results.totals(step.analysis).items():
    table.add_row(
      kind,
      f"{total.num_instructions:,}",
      f"{total.num_executions:,}",
      in_words.mb(total.operand_bytes),
      in_words.mb(total.result_bytes),
    )
  return table


def collectives_table(step: step_lib.Step) -> rich.table.Table:
  """The collectives that take longest, and how well they hide."""
  explained = explaining.of_run(step, step.default)
  by_name = {
    collective.name: collective for collective in explained.collectives
  }

  def cost_us(collective: collectives_lib.Collective) -> float:
    return by_name[collective.name].lone_us

  ranked = sorted(step.analysis.collectives, key=cost_us, reverse=True)
  table = layout.new_table(
    "What runs beside each collective (predicted per step, NCCL's defaults)",
    "collective",
    "form",
    "times",
    "MB",
    "GEMMs",
    "kernels",
    "SMs",
    "ms",
    "wait",
    "",
  )
  told = instructions.of_step(step)
  for collective in ranked[:_MOST_ROWS]:
    frames = told[collective.name].source.frames
    beside = step.analysis.kernels_beside[collective.start_id]
    total_us = cost_us(collective)
    exposed_us = by_name[collective.name].exposed_us
    key = step.key_of[collective.name]
    table.add_row(
      "\n  ".join([collective.name, *map(str, frames[:1])]),
      collective.form,
      str(collective.executions),
      in_words.mb(collective.nccl_bytes),
      str(sum(kernel.category == "gemm" for kernel in beside)),
      str(len(beside)),
      str(step.default[key].num_channels),
      in_words.ms(total_us),
      in_words.ms(exposed_us),
      _hiding(total_us, exposed_us),
    )
  if len(ranked) > _MOST_ROWS:
    table.caption = f"and {len(ranked) - _MOST_ROWS} shorter ones"
  return table


def _hiding(total_us: float, exposed_us: float) -> str:
  covered = 1 - exposed_us / total_us if total_us else 1.0
  if covered >= _HIDDEN_FROM:
    return "hidden"
  return "exposed" if covered <= _EXPOSED_UP_TO else "partial"


def host_copies_table(
  step: step_lib.Step, replayed: timeline.Timeline
) -> rich.table.Table:
  """The copies to and from the host's memory that take longest."""
  link = step.cluster.node.link_to_host
  table = layout.new_table(
    "Copies to and from the host's memory (predicted per step,"
    f" {link.effective_gbps:g} GB/s each way)",
    "copy",
    "to",
    "times",
    "MB",
    "ms",
    "wait",
    "",
  )
  ranked = sorted(
    step.analysis.host_copies,
    key=lambda c: c.executions * c.num_bytes,
    reverse=True,
  )
  for copy in ranked[:_MOST_ROWS]:
    total_us = copy.executions * step.copy_cost(copy).time_us
    wait_us = replayed.copy_wait_us.get(copy.name, 0.0)
    table.add_row(
      copy.name,
      "host" if copy.to_host else "GPU",
      str(copy.executions),
      in_words.mb(copy.num_bytes),
      in_words.ms(total_us),
      in_words.ms(wait_us),
      _hiding(total_us, wait_us),
    )
  if len(ranked) > _MOST_ROWS:
    table.caption = f"and {len(ranked) - _MOST_ROWS} shorter ones"
  return table


def times_table(
  step: step_lib.Step, replayed: timeline.Timeline
) -> rich.table.Table:
  """What the step time is made of."""
  table = layout.new_table(
    f"Predicted step, {notes.today()} (docs/cost_model.md: how far off)",
    "part",
    "ms",
  )
  table.add_row("kernels alone", in_words.ms(replayed.kernel_us))
  table.add_row(
    "+ kernels slowed by collectives",
    in_words.ms(replayed.total_slowdown_us),
  )
  table.add_row(
    "+ waits for collectives", in_words.ms(replayed.total_exposed_us)
  )
  if step.analysis.copies:
    table.add_row(
      "+ kernels slowed by copies",
      in_words.ms(replayed.total_copy_slowdown_us),
    )
    table.add_row(
      "+ waits for copies", in_words.ms(replayed.total_copy_wait_us)
    )
  table.add_row("= step", in_words.ms(replayed.step_time_us))
  known = uncertainty.step_time(uncertainty.times(step, step.default))
  table.add_row(
    "9 times in 10 between",
    in_words.ms_range(known.low, known.high, " and "),
  )
  table.add_row("lower bound", in_words.ms(lower_bound.us(step)))
  table.add_row(
    "collectives slowed by kernels", in_words.ms(replayed.total_delay_us)
  )
  return table


def slowdowns_table(replayed: timeline.Timeline) -> rich.table.Table:
  """Who slows whom most."""
  table = layout.new_table(
    "Kernels slowed most (predicted)", "kernel", "by collective", "ms/step"
  )
  ranked = sorted(
    replayed.slowdown_us.items(), key=lambda item: item[1], reverse=True
  )
  for (kernel, collective), lost_us in ranked[:5]:
    table.add_row(kernel, collective, in_words.ms(lost_us))
  return table


# Of what is applied of a plan, a row each.
_NUM_ROWS: Mapping[plan_lib.Applied, int] = {"flags": 1, "env": 2, "all": 3}


def candidates_table(tuning: tuning_lib.Tuning) -> rich.table.Table:
  """All configs that were tried, with their predicted step times."""
  table = layout.new_table(
    f"XLA options tried, with {tuning.search.num_predicted:,} more schedules"
    f" predicted and {tuning.num_trials:,} NCCL trials (predicted ms)",
    "options",
    # In two lines, which leaves names of options more of 80 columns.
    "NCCL\ndefaults",
    tried.column(tuning.plan.applied).replace(" ", "\n"),
    "sure\ngain",
    "",
  )
  table.columns[-1].justify = "left"
  candidates = tried.candidates(tuning.search)
  table.caption = tried.note(candidates)
  has_no_forms = bool(why_no_forms(tuning))
  for candidate in candidates:
    if has_no_forms and not candidate.program.is_as_written:
      continue
    times, words = ["-", "-", "-"], candidate.obstacle or "kept"
    if candidate.failure is not None:
      words = tried.refusal(candidate.failure)
    elif candidate.step_time_us is not None and candidate.gain_us is not None:
      times = [
        in_words.ms(candidate.step_time_us),
        tried.cell(candidate.tuned_step_time_us),
        in_words.ms(candidate.gain_us.low_us),
      ]
    table.add_row(_config(candidate, tuning.search.arms), *times, words)
  return table


def _config(candidate: tried.Candidate, arms: Sequence[arms_lib.Arm]) -> str:
  parts = []
  if not candidate.program.is_as_written:
    parts.append(rewriting.in_words(candidate.program))
  parts += _options(candidate.xla_options, arms)
  if candidate.combine_groups is not None:
    parts.append(f"{len(candidate.combine_groups)} combine groups")
  if candidate.has_scheduler_profile:
    parts.append("scheduler profile")
  if candidate.reordered:
    count = in_words.count(candidate.reordered, "computation")
    parts.append(f"{count} in our order")
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


def effects_table(effects: Sequence[effects_lib.Effect]) -> rich.table.Table:
  """What each knob of a plan did."""
  table = layout.new_table(
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


def gains_table(plan: plan_lib.Plan) -> rich.table.Table:
  """Before and after, by how much of the plan is applied."""
  prediction = plan.prediction
  table = layout.new_table(
    "Predicted step time, by what is applied (not measured)",
    "applied",
    "ms",
    "speed-up",
    "gain in ms, 9 times in 10",
    "",
  )
  table.columns[-1].justify = "left"
  table.add_row(
    f"before: {notes.today()}",
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


def settings_table(plan: plan_lib.Plan) -> rich.table.Table:
  """What each NCCL setting gains, and what it could lose."""
  table = layout.new_table(
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


def show_step(console: rich.console.Console, step: step_lib.Step) -> None:
  """Shows which collectives overlap which kernels, and what that costs."""
  replayed = step.timeline(step.default)
  module = step.analysis.module
  console.print(
    f"{module.name} on {step.cluster.name}:"
    f" {in_words.count(module.num_instructions, 'instruction')},"
    f" {in_words.count(step.analysis.kernels, 'kernel')},"
    f" {in_words.count(step.analysis.collectives, 'collective')},"
    f" {_tflop(step.analysis.gemm_flops)} TFLOP of matrix"
    " products and convolutions per GPU and step"
  )
  console.print(totals_table(step))
  console.print(collectives_table(step))
  if step.analysis.host_copies:
    console.print(host_copies_table(step, replayed))
  console.print(times_table(step, replayed))
  console.print(_known(step.cluster))
  losses = slowdowns_table(replayed)
  if losses.row_count:
    console.print(losses)


def _tflop(flops: int) -> str:
  """In three digits, but all of a larger number."""
  tflop = flops / 1e12
  return f"{tflop:,.0f}" if tflop >= 100 else f"{tflop:.3g}"


def _known(cluster: cluster_lib.Cluster) -> str:
  """How well collectives are known where most of them run."""
  is_between_nodes = cluster.num_nodes > 1
  where = f"over {cluster.node.fabric}" if is_between_nodes else "within a node"
  spread = uncertainty.of_collectives(
    cluster, is_between_nodes=is_between_nodes
  )
  return (
    f"Collectives {where}: {spread.n:,} measured ones take"
    f" {math.exp(spread.low):.2f} to {math.exp(spread.high):.2f} times what is"
    f" predicted, 9 in 10 of them ({'; '.join(spread.groups)})"
  )


def show_tuning(
  console: rich.console.Console, tuning: tuning_lib.Tuning
) -> None:
  """Shows what tuning found, whether it acts, and what it should gain."""
  show_step(console, tuning.before)
  console.print(candidates_table(tuning))
  if tuning.search.arms:
    console.print(arms_table(tuning.search, tuning.plan.applied))
    for note in arms_notes(tuning.search):
      console.print(note, highlight=False)
  if has_forms(tuning) and (why_none := why_no_forms(tuning)):
    console.print(why_none, highlight=False)
  elif has_forms(tuning):
    console.print(forms_table(tuning))
  console.print(effects_table(tuning.effects))
  tried, kept = tuning.kept.config.options, tuning.plan.xla.options
  if idle := [name for name in tried if name not in kept]:
    console.print(
      "Left out, as the schedule is the same without:",
      ", ".join(idle),
      highlight=False,
    )
  if tuning.plan.nccl_settings:
    console.print(settings_table(tuning.plan))
  console.print(gains_table(tuning.plan))
