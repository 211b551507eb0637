# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The verdict of a report: the step before and after, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator

from lagom_xla import plan as plan_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import lower_bound
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.costs.replay import timeline as timeline_lib
from lagom_xla.report.terminal import screen
from lagom_xla.report.wording import today
from lagom_xla.tuner import tuning as tuning_lib
from lagom_xla.verify import verification as verification_lib

_ms = in_words.milliseconds


def of_step(
  step: step_lib.Step, replayed: timeline_lib.Timeline
) -> screen.Section:
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
  return screen.Section(
    head=(
      *screen.wrapped(words),
      *_table(
        _row(
          f"step, {today.words()}",
          replayed.step_time_us,
          _between(known.low, known.high),
        ),
        _row("lower bound", lower_bound.us(step), _BOUND),
      ),
    )
  )


def of_tuning(tuning: tuning_lib.Tuning) -> screen.Section:
  """What a plan makes of a step, how surely, and what memory that takes."""
  plan, step = tuning.plan, tuning.before
  before = plan.prediction.default_range_us
  default_us = plan.prediction.default_us
  rows = [
    _row(
      f"step, {today.words()}",
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
  return screen.Section(
    head=(
      *screen.wrapped(
        f"{plan.module_name} on {plan.cluster.name}:"
        f" {_words(plan, len(tuning.candidates))} ({step.basis})."
      ),
      *_table(*rows),
    )
  )


def of_verification(verified: verification_lib.Verification) -> screen.Section:
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
  return screen.Section(
    head=(
      *screen.wrapped(
        f"Plan for {plan.module_name} on {plan.cluster.name}: {words}. Module,"
        " cluster and versions are those that it was made for."
      ),
      *_table(
        _row(
          f"step, {today.words()}",
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
    yield from screen.wrapped(text, indent=2, more=wide + right + 4)


def _words(plan: plan_lib.Plan, num_candidates: int) -> str:
  tried = in_words.count(num_candidates, "configuration")
  if plan.is_default:
    return (
      f"nothing to set: of {tried} none is surely faster than {today.words()}"
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
