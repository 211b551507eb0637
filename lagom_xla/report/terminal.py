# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports for the terminal: of an inspection, a tuning, a verification.

The verdict first, then what it rests on, in 40 lines of 80 columns; every table
where the user asks for it. Every time shown is predicted, unless it says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
import pathlib
import shlex

import rich.console

from lagom_xla import plan as plan_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import lower_bound
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.costs.replay import timeline as timeline_lib
from lagom_xla.report import instructions as instructions_lib
from lagom_xla.report import layout
from lagom_xla.report import notes
from lagom_xla.report import notes as notes_lib
from lagom_xla.report import tables
from lagom_xla.report import tried
from lagom_xla.report.page import contents
from lagom_xla.report.page import report
from lagom_xla.tuner import tuning as tuning_lib
from lagom_xla.verify import effects as effects_lib
from lagom_xla.verify import nccl_effects
from lagom_xla.verify import verification as verification_lib

_ms = in_words.milliseconds


def verdict_on_step(
  step: step_lib.Step, replayed: timeline_lib.Timeline
) -> layout.Section:
  """How long a step takes as it runs today, and what it could at best."""
  module = step.analysis.module
  lost_us = replayed.step_time_us - replayed.kernel_us
  share = lost_us / replayed.step_time_us if replayed.step_time_us else 0.0
  to_copies_us = replayed.total_copy_wait_us + replayed.total_copy_slowdown_us
  what = "collectives and copies" if to_copies_us else "collectives"
  words = (
    f"{module.name} on {step.cluster.name}: {what} cost"
    f" {_ms(lost_us)} of a step of {_ms(replayed.step_time_us)},"
    f" {share:.1%} ({step.basis})."
  )
  if not step.analysis.collectives and not step.analysis.host_copies:
    words = (
      f"{module.name} on {step.cluster.name}: no collective, so nothing to"
      f" overlap in a step of {_ms(replayed.step_time_us)} ({step.basis})."
    )
  known = uncertainty.step_time(uncertainty.times(step, step.default))
  return layout.Section(
    head=(
      *layout.wrapped(words),
      *_table(
        _row(
          f"step, {notes.today()}",
          replayed.step_time_us,
          _between(known.low, known.high),
        ),
        _row("lower bound", lower_bound.us(step), _BOUND),
      ),
    )
  )


def verdict_on_tuning(tuning: tuning_lib.Tuning) -> layout.Section:
  """What a plan makes of a step, how surely, and what memory that takes."""
  plan, step = tuning.plan, tuning.before
  before = plan.prediction.default_range_us
  default_us = plan.prediction.default_us
  rows = [
    _row(
      f"step, {notes.today()}",
      default_us,
      _between(before.low_us, before.high_us),
    )
  ]
  if not plan.is_default:
    rows.append(
      _row(
        "with the plan",
        plan.planned_us,
        gain(default_us, plan, plan.planned_us),
      )
    )
  bound = _BOUND if plan.xla.is_default else _BOUND_OF_BOTH
  rows.append(_row("lower bound", tuning.lower_bound_us, bound))
  rows += _memory(tuning)
  return layout.Section(
    head=(
      *layout.wrapped(
        f"{plan.module_name} on {plan.cluster.name}:"
        f" {_words(plan, len(tuning.candidates))} ({step.basis})."
      ),
      *_table(*rows),
    )
  )


def verdict_on_verification(
  verified: verification_lib.Verification,
) -> layout.Section:
  """Whether all of a plan acts, and what it makes of the step."""
  plan = verified.plan
  idle = [effect for effect in verified.effects if not effect.acted]
  words = "sets nothing"
  if idle:
    words = f"{len(idle)} of {in_words.count(verified.effects, 'part')} of it"
    words += " have no effect" if len(idle) > 1 else " has no effect"
  elif verified.effects:
    words = f"all {in_words.count(verified.effects, 'part')} of it act"
    if len(verified.effects) == 1:
      words = "its one part acts"
  known = plan.prediction.default_range_us
  return layout.Section(
    head=(
      *layout.wrapped(
        f"Plan for {plan.module_name} on {plan.cluster.name}: {words}. Module,"
        " cluster and versions are those that it was made for."
      ),
      *_table(
        _row(
          f"step, {notes.today()}",
          verified.default_us,
          _between(known.low_us, known.high_us),
        ),
        _row(
          "with the plan",
          verified.planned_us,
          gain(verified.default_us, plan, verified.planned_us),
        ),
      ),
    )
  )


def gain(default_us: float, plan: plan_lib.Plan, planned_us: float) -> str:
  """What a plan gains, and how surely."""
  known = plan.gain_us
  if known.low_us == known.high_us == 0:
    return "the same: it changes nothing"
  return (
    f"gains {_ms(default_us - planned_us)}; 9 times in 10,"
    f" {in_words.ms_range(known.low_us, known.high_us)}"
  )


# Options and forms make other modules, of which this one knows nothing.
_BOUND = "of this module: any order, any NCCL settings"
_BOUND_OF_BOTH = "of both modules: any order, any NCCL settings"
_Row = tuple[str, str, str]


def _row(name: str, us: float, words: str) -> _Row:
  return name, _ms(us), words


def _between(low_us: float, high_us: float) -> str:
  ends = in_words.ms_range(low_us, high_us, " and ")
  return f"9 times in 10 between {ends}"


def _table(*rows: _Row) -> Iterator[str]:
  """Rows in columns, as wide as the widest."""
  wide, right = (max(len(row[i]) for row in rows) for i in (0, 1))
  for name, figure, words in rows:
    text = f"{name:{wide}}  {figure:>{right}}  {words}"
    yield from layout.wrapped(text, indent=2, more=wide + right + 4)


def _words(plan: plan_lib.Plan, num_candidates: int) -> str:
  tried = in_words.count(num_candidates, "configuration")
  if plan.is_default:
    return (
      f"nothing to set: of {tried} none is surely faster than {notes.today()}"
    )
  shorter = 1 - plan.planned_us / plan.prediction.default_us
  known = plan.gain_us
  if known.low_us <= 0 <= known.high_us:
    return f"the plan may gain {shorter:.1%}, which is inside the noise"
  way = "shorter" if shorter >= 0 else "longer"
  return f"the plan makes the step {abs(shorter):.1%} {way}"


def _memory(tuning: tuning_lib.Tuning) -> Iterator[_Row]:
  before, after = tuning.peak_bytes_before, tuning.peak_bytes_after
  if before is None or after is None:
    yield "peak memory", "-", "not known: not compiled to its end"
    return
  hbm_bytes = tuning.plan.cluster.gpu.hbm_bytes
  of_all = f"of {in_words.gigabytes(hbm_bytes)} per GPU"
  if after > hbm_bytes:
    of_all += ": it does not fit"
  change = f"{in_words.gigabytes(after)} with the plan, "
  if tuning.plan.is_default:
    change = ""
  yield (
    "peak memory",
    in_words.gigabytes(before),
    f"{change}{of_all}",
  )


# Columns of a time.
_WIDE = 9


def exposed(
  step: step_lib.Step,
  configuration: step_lib.Configuration,
  replayed: timeline_lib.Timeline,
  when: str,
) -> layout.Section | None:
  """What kernels wait for and lose, collective by collective; None for nothing.

  Args:
    step: the step.
    configuration: NCCL's settings of it.
    replayed: it, under them.
    when: the step runs so, such as "today"; names are those of its module then.
  """
  if not step.analysis.collectives and not step.analysis.host_copies:
    return None
  head = (
    f"Exposed {when}: kernels wait {_ms(replayed.total_exposed_us)}, and lose"
    f" {_ms(replayed.total_slowdown_us)} beside collectives"
  )
  if replayed.total_copy_wait_us or replayed.total_copy_slowdown_us:
    head += (
      f"; {_ms(replayed.total_copy_wait_us)} and"
      f" {_ms(replayed.total_copy_slowdown_us)} for copies"
    )
  instructions = instructions_lib.of_step(step)
  found = contents.losses(step, configuration, instructions)
  costly = [one for one in found if one.why_waits or one.slowed]
  if not costly:
    return layout.Section(head=layout.wrapped(f"{head}."))
  return layout.Section(
    head=(
      *layout.wrapped(f"{head}."),
      f"{'wait':>{_WIDE}}{'lose':>{_WIDE}}  ms per step, by collective of"
      f" {when}'s module",
    ),
    items=tuple(_item(one) for one in costly),
    least=1,
  )


def _item(one: report.Collective) -> tuple[str, ...]:
  label = one.label
  times = "".join(
    f"{in_words.ms(us):>{_WIDE}}" for us in (one.wait_us, one.slows_us)
  )
  runs = f", {one.executions} runs" if one.executions > 1 else ""
  others = f" and {one.num_others} like it" if one.num_others else ""
  source = f" from {label.source}" if label.source else ""
  why = one.why_waits or one.why_slows
  return (
    *layout.wrapped(f"{times}  {label.what}{runs}", more=2 * _WIDE + 2),
    *layout.wrapped(f"{label.name}{others}{source}. {why}", indent=4, more=0),
  )


def settings(tuning: tuning_lib.Tuning) -> Iterator[layout.Section]:
  """What a tuning's plan sets, by what applies it."""
  plan = tuning.plan
  seen = {effect.knob: effect for effect in tuning.effects}
  if plan.needs_process and not plan.xla.is_default:
    items = [_effect(e) for e in tuning.effects if _is_of_xla(e, plan)]
    yield _group(_words_of_xla(tuning), items)
  elif not plan.xla.is_default:
    items = [
      _option(name, value, seen.get(name))
      for name, value in plan.xla.options.items()
    ]
    yield _group(
      _words_of_xla(tuning), sorted(items, key=lambda item: -item[0])
    )
  if plan.nccl_settings:
    entries = sorted(plan.nccl_settings, key=lambda entry: -entry.gain_us)
    items = [(entry.gain_us, _nccl(entry, plan)) for entry in entries]
    yield _group(
      "NCCL's settings (env.sh, with the tuner plugin):"
      f" {_change(tried.xla_us(tuning), plan.planned_us)}",
      items,
    )
  for name, value in plan.nccl_env.items():
    change = _change(plan.prediction.xla_us, plan.prediction.nccl_env_us)
    head = layout.wrapped(f"{name}={value}{_where(name, plan)}: {change}")
    yield layout.Section(head=head)


def effects(
  effects: Sequence[effects_lib.Effect], plan: plan_lib.Plan
) -> layout.Section:
  """What each knob of a plan was seen to do, those that do nothing first."""
  ordered = sorted(effects, key=lambda e: (e.acted, -(e.gain_us or 0.0)))
  return layout.Section(
    head=("What each part does, the others in place:",) if ordered else (),
    items=tuple(_effect(e, _where(e.knob, plan))[1] for e in ordered),
    least=sum(not effect.acted for effect in effects),
  )


_Item = tuple[float, tuple[str, ...]]


def _group(words: str, items: Sequence[_Item]) -> layout.Section:
  return layout.Section(
    head=layout.wrapped(words),
    items=tuple(lines for _, lines in items),
    least=1,
  )


def _words_of_xla(tuning: tuning_lib.Tuning) -> str:
  """What is set of XLA, who publishes it, and what all of it gains."""
  plan = tuning.plan
  change = _change(tuning.timeline_before.step_time_us, tried.xla_us(tuning))
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
  return 0.0, layout.wrapped(text, indent=2)


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
  return gain_us, layout.wrapped(f"{text}; {seen}", indent=2)


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
  return layout.wrapped(text, indent=2)


def notes_section(notes: Iterable[str]) -> layout.Section:
  """Notes as a part of a report; one of them at least is shown."""
  return layout.Section(
    head=(),
    items=tuple(layout.wrapped(f"Note: {note}") for note in notes),
    least=1,
  )


def next_steps(
  plan: plan_lib.Plan, files: Sequence[pathlib.Path]
) -> layout.Section:
  """What to do with a plan.

  Args:
    plan: the plan.
    files: that were written, plan.json first; none if it was not written.
  """
  if not files:
    return layout.Section(head=())
  folder = str(files[0].parent)
  place = shlex.quote(folder)
  does = []
  if not plan.is_default:
    does.append(
      (f"source {place}/env.sh", "on every process, before Python starts")
    )
  if plan.needs_process:
    does.append((f"lagom_xla.tune(plan={folder!r})", "around the step"))
  typed = notes_lib.program_name()
  does.append((f"{typed} report {place}", "a page: the step before and after"))
  does.append((f"{typed} explain {place}", "why kernels wait, and what helps"))
  does.append(("the same with -v", "every table, with what was tried"))
  wide = max(len(what) for what, _ in does)
  rows = [
    line
    for what, why in does
    for line in layout.wrapped(f"{what:{wide}}  {why}", indent=2)
  ]
  return layout.Section(head=("Next:", *rows))


_EVERYTHING = "-v shows every table"
_MORE_OF_STEP = (
  "Next: `lagom-xla explain` tells what would help each collective,",
  f"`lagom-xla tune` looks for a plan, and {_EVERYTHING}",
)


def show_inspection(
  console: rich.console.Console,
  step: step_lib.Step,
  files: Sequence[pathlib.Path] = (),
  *,
  notes: Iterable[str] = (),
  is_verbose: bool = False,
) -> None:
  """Shows what collectives cost a step, which ones, and why.

  Args:
    console: where.
    step: the step.
    files: that were written.
    notes: what else to know of it.
    is_verbose: whether to show every table, too.
  """
  replayed = step.timeline(step.default)
  told = (
    *notes_lib.step_notes(step),
    *notes_lib.scatter_notes(step, replayed.step_time_us),
    *notes,
  )
  more = _MORE_OF_STEP if step.analysis.collectives else (_EVERYTHING,)
  sections = (
    verdict_on_step(step, replayed),
    exposed(step, step.default, replayed, "today"),
    notes_section(told),
    None if is_verbose else layout.Section(head=more),
  )
  layout.show_sections(console, sections, files, is_whole=is_verbose)
  if is_verbose:
    tables.show_step(console, step)
  layout.show_files(console, files)


def show_tuning(
  console: rich.console.Console,
  tuning: tuning_lib.Tuning,
  files: Sequence[pathlib.Path],
  *,
  is_verbose: bool = False,
) -> None:
  """Shows what tuning found, whether it acts, and what it should gain.

  Args:
    console: where.
    tuning: what was found.
    files: that were written, the plan's among them.
    is_verbose: whether to show every table, too.
  """
  before = tuning.before
  sections = (
    verdict_on_tuning(tuning),
    exposed(before, before.default, tuning.timeline_before, "today"),
    *settings(tuning),
    notes_section(notes_lib.tuning_notes(tuning)),
    next_steps(tuning.plan, files),
  )
  layout.show_sections(console, sections, files, is_whole=is_verbose)
  if is_verbose:
    tables.show_tuning(console, tuning)
  layout.show_files(console, files)


def show_verification(
  console: rich.console.Console,
  verification: verification_lib.Verification,
  *,
  is_verbose: bool = False,
) -> None:
  """Shows what each knob of a plan did, and what all of it should gain.

  Args:
    console: where.
    verification: what was seen.
    is_verbose: whether to show every table, too.
  """
  sections = (
    verdict_on_verification(verification),
    effects(verification.effects, verification.plan),
    notes_section(notes_lib.plan_notes(verification.plan)),
  )
  layout.show_sections(console, sections, (), is_whole=is_verbose)
  if is_verbose:
    console.print(tables.effects_table(verification.effects))
