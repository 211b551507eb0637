# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports for the terminal: of an inspection, a tuning, a verification.

A report starts with the verdict and its basis, and fits 40 lines of 80 columns;
-v adds every table. All times are predicted unless labeled otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import itertools
import pathlib
import shlex

import rich.console

from lagom_xla import plan as plan_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import lower_bound
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.costs.replay import timeline as timeline_lib
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.profiling import costing as costing_lib
from lagom_xla.profiling import overlaps as overlaps_lib
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.report import instructions as instructions_lib
from lagom_xla.report import layout
from lagom_xla.report import notes
from lagom_xla.report import settings
from lagom_xla.report import tables
from lagom_xla.report.page import contents
from lagom_xla.report.page import report
from lagom_xla.tuner import tuning as tuning_lib
from lagom_xla.verify import verification as verification_lib

_ms = in_words.milliseconds
_EVERYTHING = "-v shows every table"
_WITH_TABLES = ("the same with -v", "every table")
# The bound is for this module. Options and forms make other modules.
_BOUND = "this module in its best order and settings"
_BOUND_OF_BOTH = "either module in its best order and settings"


def show_inspection(
  console: rich.console.Console,
  step: step_lib.Step,
  files: Sequence[pathlib.Path] = (),
  *,
  advice: Sequence[explanation_lib.Advice] = (),
  costed: costing_lib.Costing | None = None,
  following: Sequence[tuple[str, str]] = (),
  is_verbose: bool = False,
) -> None:
  """Shows the cost of collectives in a step, the costliest, and why.

  `following` has commands for a step with collectives, and what they say.
  """
  replayed = step.timeline(step.default)
  more = layout.Section(head=(_EVERYTHING,))
  if following and step.analysis.collectives:
    more = _commands([*following, _WITH_TABLES])
  layout.show(
    console,
    (
      _verdict_on_step(step, replayed),
      _advice(advice),
      _exposed(step, replayed),
      layout.notes(
        (
          *notes.step_notes(step),
          *notes.cost_notes(step, costed),
        )
      ),
      None if is_verbose else more,
    ),
    files,
    tables.of_inspection(step, costed) if is_verbose else None,
  )


def show_tuning(
  console: rich.console.Console,
  tuning: tuning_lib.Tuning,
  files: Sequence[pathlib.Path],
  *,
  beyond: str = "",
  costed: costing_lib.Costing | None = None,
  is_verbose: bool = False,
) -> None:
  """Shows the result of tuning, the effect of each setting, and the gain.

  `beyond` is a last sentence, about rewrites of the program.
  """
  layout.show(
    console,
    (
      _verdict_on_tuning(tuning),
      _advice(tuning.advice),
      _exposed(tuning.before, tuning.timeline_before),
      *(
        layout.Section(
          head=layout.wrapped(f"{group.name}: {group.change}"),
          items=_items(group.settings, is_verbose),
          least=1,
        )
        for group in settings.groups(tuning)
      ),
      layout.notes(
        (
          *notes.tuning_notes(tuning),
          *notes.cost_notes(tuning.before, costed if is_verbose else None),
        )
      ),
      _next(tuning.plan, files),
      layout.Section(head=layout.wrapped(beyond)) if beyond else None,
    ),
    files,
    tables.of_tuning(tuning, costed) if is_verbose else None,
  )


def show_verification(
  console: rich.console.Console,
  verification: verification_lib.Verification,
  *,
  is_verbose: bool = False,
) -> None:
  """Shows the effect of each part of a plan, and the predicted gain of all."""
  layout.show(
    console,
    (
      _verdict_on_verification(verification),
      _effects(verification, is_verbose),
      layout.notes(notes.plan_notes(verification.plan)),
    ),
    tables=() if is_verbose else None,
  )


# A name, a time or size, and an explanation.
_Row = tuple[str, str, str]


def _verdict(words: str, rows: Sequence[_Row]) -> layout.Section:
  """A sentence, then rows in aligned columns."""
  wide, right = (max(len(row[i]) for row in rows) for i in (0, 1))
  head = [*layout.wrapped(words)]
  for name, figure, known in rows:
    text = f"{name:{wide}}  {figure:>{right}}  {known}"
    head += layout.wrapped(text, indent=2, more=wide + right + 4)
  return layout.Section(head=tuple(head))


def _verdict_on_step(
  step: step_lib.Step, replayed: timeline_lib.Timeline
) -> layout.Section:
  """Today's step time, and its lower bound."""
  step_us = replayed.step_time_us
  lost_us = step_us - replayed.kernel_us
  to_copies_us = replayed.total_copy_wait_us + replayed.total_copy_slowdown_us
  what = "collectives and copies" if to_copies_us else "collectives"
  words = (
    f"{what} cost {_ms(lost_us)} of a step of {_ms(step_us)},"
    f" {lost_us / step_us if step_us else 0.0:.1%}"
  )
  estimate = uncertainty.step_time(uncertainty.times(step, step.default))
  hidden = in_words.some([*{*step.calls_that_may_communicate.values()}])
  moves_data = step.analysis.collectives or step.analysis.host_copies
  if hidden and moves_data:
    words = (
      f"visible {what} cost {_ms(lost_us)} of a step of {_ms(step_us)} or"
      f" more; {hidden} may hold others"
    )
  elif hidden:
    words = (
      f"a step of {_ms(step_us)} or more has no visible collective, but"
      f" {hidden} may hold some"
    )
  elif not moves_data:
    words = f"a step of {_ms(step_us)} has no collective to overlap"
  name = step.analysis.module.name
  return _verdict(
    f"{name} on {step.cluster.name}: {words} ({step.basis}).",
    (
      _today(step_us, estimate.low, estimate.high, estimate.is_open),
      ("lower bound", _ms(lower_bound.us(step)), _BOUND),
    ),
  )


def _today(us: float, low_us: float, high_us: float, is_open: bool) -> _Row:
  known = f"9 times in 10 between {in_words.ms_range(low_us, high_us, ' and ')}"
  if is_open:
    least = in_words.rounded_ms(low_us)
    known = f"at least {least}: only the bytes of some calls are costed"
  return f"step, {notes.today()}", _ms(us), known


def _verdict_on_tuning(tuning: tuning_lib.Tuning) -> layout.Section:
  """A plan's effect on step time, with ranges, and on memory."""
  plan = tuning.plan
  default_us = plan.prediction.default_us
  before = plan.prediction.default_range_us
  rows = [_today(default_us, before.low_us, before.high_us, before.is_open)]
  planned_us = None
  if not plan.is_default:
    planned_us = plan.planned_us
    rows.append(_with_plan(default_us - planned_us, plan.gain_us, planned_us))
  words = report.verdict(
    default_us,
    planned_us,
    (plan.gain_us.low_us, plan.gain_us.high_us),
    len(tuning.candidates),
  )
  bound = _BOUND if plan.xla.is_default else _BOUND_OF_BOTH
  rows.append(("lower bound", _ms(tuning.lower_bound_us), bound))
  rows.append(("peak memory", *settings.peak_memory(tuning)))
  return _verdict(
    f"{plan.module_name} on {plan.cluster.name}: {words}"
    f" ({tuning.before.basis}).",
    rows,
  )


def _with_plan(
  gain_us: float, known: plan_lib.Range, planned_us: float
) -> _Row:
  """A plan's gain, with its range."""
  within = in_words.ms_range(known.low_us, known.high_us)
  words = f"gains {_ms(gain_us)}; 9 times in 10, {within}"
  if gain_us < 0:
    words = f"loses {_ms(-gain_us)}; 9 times in 10 it gains {within}"
  if known.low_us == known.high_us == 0:
    words = "unchanged"
  return "with the plan", _ms(planned_us), words


def _verdict_on_verification(
  verified: verification_lib.Verification,
) -> layout.Section:
  """Whether every part of a plan has an effect, and the plan's gain."""
  plan, parts = verified.plan, in_words.count(verified.effects, "part")
  num_idle = sum(not effect.acted for effect in verified.effects)
  if num_idle:
    has = "has" if num_idle == 1 else "have"
    words = f"{num_idle} of its {parts} {has} no effect"
  elif len(verified.effects) == 1:
    words = "its only part has an effect"
  elif verified.effects:
    words = f"all of its {parts} have an effect"
  else:
    words = "it sets nothing"
  if verified.loses:
    words = f"the step is longer with it, and {words}"
  if verified.too_large:
    words = f"{words}. {verified.too_large.removesuffix('.')}"
  if differs := ", ".join(verified.differs_in_env):
    words += f". Its env.sh differs in {differs}"
  known, gain_us = verified.default_range_us, verified.default_us
  gain_us -= verified.planned_us
  return _verdict(
    f"Plan for {plan.module_name} on {plan.cluster.name}: {words}. It was made"
    " for this module, cluster and JAX.",
    (
      _today(verified.default_us, known.low_us, known.high_us, known.is_open),
      _with_plan(gain_us, verified.gain_us, verified.planned_us),
    ),
  )


# Width of a time, in columns.
_WIDE = 9


def _exposed(
  step: step_lib.Step, replayed: timeline_lib.Timeline
) -> layout.Section | None:
  """Today's waits and losses of kernels; None without communication."""
  if not step.analysis.collectives and not step.analysis.host_copies:
    return None
  head = (
    f"Today kernels wait {_ms(replayed.total_exposed_us)} for collectives and"
    f" are slowed by {_ms(replayed.total_slowdown_us)} beside them"
  )
  of_copies = [
    f"{verb} {_ms(us)} {preposition} copies"
    for verb, us, preposition in (
      ("wait", replayed.total_copy_wait_us, "for"),
      ("are slowed by", replayed.total_copy_slowdown_us, "beside"),
    )
    if us > 0
  ]
  if of_copies:
    head += f"; they {' and '.join(of_copies)}"
  lines = [*layout.wrapped(f"{head}.")]
  items = []
  instructions = instructions_lib.of_step(step)
  for loss in contents.losses(step, step.default, instructions):
    if not loss.why_waits and not loss.slowed:
      continue
    wait, slowed = (in_words.ms(us) for us in (loss.wait_us, loss.slows_us))
    runs = f", {loss.executions:,} per step" if loss.executions > 1 else ""
    others = f" and {loss.num_others} like it" if loss.num_others else ""
    moves = f": {loss.label.moves}" if loss.label.moves else ""
    source = f" from {loss.label.source}" if loss.label.source else ""
    comma = "," if moves and source else ""
    why = loss.why_waits or loss.why_slows
    items.append(
      (
        *layout.wrapped(
          f"{wait:>{_WIDE}}{slowed:>{_WIDE}}  {loss.label.what}{runs}",
          more=2 * _WIDE + 2,
        ),
        *layout.wrapped(
          f"{loss.label.name}{others}{moves}{comma}{source}. {why}",
          indent=4,
          more=0,
        ),
      )
    )
  if items:
    lines.append(
      f"{'wait':>{_WIDE}}{'slowed':>{_WIDE}}  ms per step, for each collective"
      " of today's module"
    )
  return layout.Section(head=tuple(lines), items=tuple(items), least=1)


def _items(
  some: Iterable[settings.Setting], is_whole: bool
) -> tuple[tuple[str, ...], ...]:
  return tuple(
    layout.wrapped(one.line + one.more * is_whole, indent=2) for one in some
  )


def _advice(advice: Sequence[explanation_lib.Advice]) -> layout.Section | None:
  """Advice on the program; the first item is always shown."""
  items = tuple(layout.wrapped(str(one)) for one in advice)
  return layout.Section(head=(), items=items, least=1) if items else None


def _effects(
  verified: verification_lib.Verification, is_whole: bool
) -> layout.Section:
  """The effect of each part of a plan; parts without effect come first."""
  plan = verified.plan
  ordered = sorted(
    verified.effects, key=lambda e: (e.acted, -(e.gain_us or 0.0))
  )
  told = (
    settings.of_effect(e, settings.where(plan) * (e.knob in plan.nccl_env))
    for e in ordered
  )
  return layout.Section(
    head=("Effect of each part, with all others:",) if ordered else (),
    items=_items(told, is_whole),
    least=sum(not effect.acted for effect in ordered),
  )


def show_profile(
  console: rich.console.Console,
  profile: profile_lib.Profile,
  files: Sequence[pathlib.Path] = (),
  *,
  is_verbose: bool = False,
) -> None:
  """Shows waits, slowdowns and late ranks of a measured run."""
  overlaps = overlaps_lib.of_profile(profile)
  layout.show(
    console,
    (
      _verdict_on_profile(profile, overlaps),
      _waited_for(profile, overlaps),
      layout.notes(notes.profile_notes(profile)),
      None if is_verbose else layout.Section(head=(_EVERYTHING,)),
    ),
    files,
    tables.of_profile(overlaps) if is_verbose else None,
  )


def _verdict_on_profile(
  profile: profile_lib.Profile, overlaps: overlaps_lib.Overlaps
) -> layout.Section:
  """The waits of kernels in the run, and the latest device."""
  count = in_words.count
  trace = profile.trace
  late_us = sum(row.late_ranks_us for row in overlaps.collectives)
  late = max(overlaps.devices, key=lambda row: row.late_us, default=None)
  latest = ""
  if late is not None and late.late_us:
    latest = f"; {late.name} keeps others waiting most, {_ms(late.late_us)}"
  return layout.Section(
    head=(
      *layout.wrapped(
        f"{profile.analysis.module.name}, measured: kernels wait"
        f" {_ms(overlaps.exposed_us)} for collectives and are"
        f" slowed by {_ms(overlaps.slowdown_us)} beside them, of a step of"
        f" {_ms(overlaps.step_us)}."
      ),
      *layout.wrapped(
        f"Late ranks cause {_ms(late_us)} of the waits{latest}.",
        indent=2,
      ),
      *layout.wrapped(
        f"{count(profile.whole_steps, 'complete step')} on"
        f" {count(trace.devices, trace.platform)} of"
        f" {count(trace.processes, 'process', 'processes')}; means of devices"
        " and steps.",
        indent=2,
      ),
    )
  )


def _waited_for(
  profile: profile_lib.Profile, overlaps: overlaps_lib.Overlaps
) -> layout.Section | None:
  """The costliest collectives, as measured, with their source lines."""
  if not overlaps.collectives:
    return None
  instructions = instructions_lib.of_analysis(
    profile.analysis, profile.trace.platform
  )
  items = []
  for row in sorted(
    overlaps.collectives, key=lambda row: -(row.exposed_us + row.slowdown_us)
  ):
    known = instructions.get(row.name)
    what = f"{row.name}: {known.words}" if known else row.name
    source = str(known.source) if known else ""
    times_us = (row.exposed_us, row.late_ranks_us, row.slowdown_us)
    times = "".join(f"{in_words.ms(us):>{_WIDE}}" for us in times_us)
    first = layout.wrapped(f"{times}  {what}", more=29)
    items.append((*first, *layout.wrapped(source, indent=29, more=0)))
  head = (
    "     wait  of late   slowed  ms per step, for each collective that ran"
  )
  return layout.Section(head=(head,), items=tuple(items), least=1)


def _next(
  plan: plan_lib.Plan, files: Sequence[pathlib.Path]
) -> layout.Section | None:
  """The next commands for a plan; `files` starts with its plan.json."""
  if not files:
    return None
  folder = str(files[0].parent)
  place, typed = shlex.quote(folder), notes.program_name()
  does = [
    (f"{typed} report {place}", "a page: the step before and after"),
    (f"{typed} explain {place}", "why kernels wait, and what helps"),
    ("the same with -v", "every table, and all candidates"),
  ]
  if plan.needs_process:
    does.insert(0, (f"lagom_xla.tune(plan={folder!r})", "around the step"))
  if not plan.is_default:
    source = f"source {place}/env.sh"
    does.insert(0, (source, "on every process, before Python starts"))
  return _commands(does)


def _commands(does: Sequence[tuple[str, str]]) -> layout.Section:
  """Commands, each whole on its line, and what they do."""
  wide = max(len(what) for what, _ in does)
  lines = [f"  {what:{wide}}  {why}" for what, why in does]
  if max(map(len, lines)) > layout.NUM_COLUMNS:
    rows = ((f"  {what}", f"    {why}") for what, why in does)
    lines = [*itertools.chain(*rows)]
  return layout.Section(head=("Next:", *lines))
