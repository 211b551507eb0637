# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Explanations for the terminal: of a step, or of one collective of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import textwrap

import rich.console
import rich.table

from lagom_xla.costs import in_words
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.explain import sentences
from lagom_xla.report import layout

_ms = in_words.milliseconds
# The whole is at most 40 lines of so many columns.
_WIDTH = 80
# Less is 0.00 ms.
_LEAST_US = 0.5
_MOST_REASONS = 6
_MOST_COLLECTIVES = 8
_MOST_LEFT = 2


def show(
  console: rich.console.Console,
  explanation: explanation_lib.Explanation,
  *,
  asked: str,
) -> None:
  """Shows why a step's collectives are exposed.

  Args:
    console: where to.
    explanation: of the step.
    asked: the command without its collective, to go on with.
  """
  before, after = explanation.before, explanation.after
  if not before.collectives:
    _say(
      console,
      f"{explanation.module_name} on {explanation.cluster} has no collective,"
      f" so none is exposed in its step of {_ms(before.step_us)}"
      f" ({explanation.basis}).",
    )
    return
  exposed = [c for c in before.collectives if c.exposed_us > 0]
  for text in _verdict(explanation, len(exposed)):
    _say(console, text)
  if not exposed:
    return
  _show_reasons(console, before, after)
  _show_collectives(console, exposed)
  if after is not None and (left := _left(after)):
    _say(console, f"Exposed most with the plan: {left}.")
  first = exposed[0]
  _say(console, f"{first.name} is exposed most. {first.why}")
  _say(console, f"`{asked} {first.name}` says more of it.")


def _verdict(
  explanation: explanation_lib.Explanation, num_exposed: int
) -> Iterator[str]:
  """What kernels wait today and with the plan, and what nothing can beat."""
  before, after = explanation.before, explanation.after
  yield (
    f"{explanation.module_name} on {explanation.cluster}: kernels wait"
    f" {_ms(before.exposed_us)} of a step of {_ms(before.step_us)}, for"
    f" {num_exposed:,} of"
    f" {in_words.count(before.collectives, 'collective')}"
    f" ({explanation.basis})."
  )
  bound_us, modules = before.lower_bound_us, "this module"
  if after is not None:
    yield (
      f"With the plan they wait {_ms(after.exposed_us)} of"
      f" {_ms(after.step_us)}."
    )
    # A plan's module may have shorter kernels than what runs today.
    bound_us = min(bound_us, after.lower_bound_us)
    modules = "today's module and the plan's"
  yield (
    f"Lower bound: {_ms(bound_us)}, of {modules} in any order, with any NCCL"
    " settings."
  )


def show_collective(
  console: rich.console.Console,
  explanation: explanation_lib.Explanation,
  name: str,
) -> None:
  """Shows why one collective is exposed, and what can be done about it.

  Raises:
    UnknownCollectiveError: there is none of that name.
  """
  step, one = explanation_lib.find(explanation, name)
  with_plan = " with the plan" if step is explanation.after else ""
  _say(
    console,
    f"{one.name} is exposed {_ms(one.exposed_us)} of the {_ms(one.lone_us)}"
    f" that it takes alone, in a step of {_ms(step.step_us)}{with_plan}"
    f" ({explanation.basis}).",
  )
  runs = "once" if one.executions == 1 else f"{one.executions:,} times"
  combined = f", {one.num_arrays} arrays combined" * (one.num_arrays > 1)
  _say(
    console,
    f"{one.what}{combined}, {one.form}, {runs} per step, in {one.computation}",
  )
  if source := _source(one):
    _say(console, f"from {source}")
  if one.sync_because:
    _say(console, f"It is sync: {one.sync_because}.")
  if one.parts:
    _show_parts(console, one)
  if one.slowed_us >= _LEAST_US:
    _show_slowed(console, one)
  if one.with_plan is not None:
    _say(console, f"The plan: {one.with_plan.sentence}")
  for advice in one.advice:
    _say(console, advice)


def _say(console: rich.console.Console, text: str) -> None:
  width = min(console.width, _WIDTH)
  for line in textwrap.wrap(text, width, break_on_hyphens=False):
    console.print(line, highlight=False, soft_wrap=True)


def _show(console: rich.console.Console, table: rich.table.Table) -> None:
  for line in layout.table_lines(console, table, min(console.width, _WIDTH)):
    console.print(line, highlight=False, soft_wrap=True)


def _show_reasons(
  console: rich.console.Console,
  before: explanation_lib.Step,
  after: explanation_lib.Step | None,
) -> None:
  columns = ["today"] if after is None else ["today", "with the plan"]
  table = layout.new_table("Why they wait (ms per step)", "reason", *columns)
  steps = [before] if after is None else [before, after]
  ranked = sorted(
    (
      reason
      for reason in sentences.REASONS
      if any(_is_shown(s.reasons_us.get(reason, 0.0)) for s in steps)
    ),
    key=lambda reason: -max(s.reasons_us.get(reason, 0.0) for s in steps),
  )
  for reason in ranked[:_MOST_REASONS]:
    table.add_row(
      sentences.REASONS[reason],
      *(in_words.ms(s.reasons_us.get(reason, 0.0)) for s in steps),
    )
  rest_us = [
    s.unexplained_us
    + sum(s.reasons_us.get(r, 0.0) for r in ranked[_MOST_REASONS:])
    for s in steps
  ]
  if any(map(_is_shown, rest_us)):
    table.add_row("all others", *(in_words.ms(us) for us in rest_us))
  _show(console, table)


def _is_shown(us: float) -> bool:
  """Whether a time is more than nothing with the digits that it is shown by."""
  return in_words.ms(us) != in_words.ms(0.0)


def _show_collectives(
  console: rich.console.Console, exposed: Sequence[explanation_lib.Collective]
) -> None:
  table = layout.new_table(
    "Exposed most (ms per step)", "collective", "ms", "mostly", "from"
  )
  for column in table.columns[2:]:
    column.justify = "left"
  for one in exposed[:_MOST_COLLECTIVES]:
    table.add_row(one.name, in_words.ms(one.exposed_us), _mostly(one), one.at)
  if len(exposed) > _MOST_COLLECTIVES:
    table.caption = f"and {len(exposed) - _MOST_COLLECTIVES:,} more"
  _show(console, table)


def _left(after: explanation_lib.Step) -> str:
  """What stays exposed with a plan, in words."""
  return ", ".join(
    f"{one.name} for {_ms(one.exposed_us)} ({_mostly(one)})"
    for one in after.collectives[:_MOST_LEFT]
    if one.exposed_us >= _LEAST_US
  )


def _mostly(one: explanation_lib.Collective) -> str:
  return (
    sentences.REASONS[one.parts[0].reason] if one.parts else "not looked at"
  )


def _show_parts(
  console: rich.console.Console, one: explanation_lib.Collective
) -> None:
  table = layout.new_table(
    "Why it is exposed (ms per step)", "reason", "ms", ""
  )
  table.columns[-1].justify = "left"
  for part in one.parts:
    if part.us < _LEAST_US:
      continue
    table.add_row(
      sentences.REASONS[part.reason], in_words.ms(part.us), part.sentence
    )
  table.add_row("= exposed", in_words.ms(one.exposed_us))
  if one.unhideable_us is not None and one.hideable_us is not None:
    table.caption = (
      f"Kernels that could run beside it: {_ms(one.hideable_us)}; exposed"
      f" in any order of these instructions: {_ms(one.unhideable_us)}"
    )
  _show(console, table)


def _show_slowed(
  console: rich.console.Console, one: explanation_lib.Collective
) -> None:
  table = layout.new_table(
    f"It slows kernels by {_ms(one.slowed_us)} per step",
    *("kernel", "ms", "from"),
  )
  table.columns[-1].justify = "left"
  for slowed in one.slows:
    if slowed.us < _LEAST_US:
      continue
    table.add_row(slowed.kernel, in_words.ms(slowed.us), slowed.source)
  _show(console, table)


def _source(one: explanation_lib.Collective) -> str:
  said = ", ".join(filter(None, (one.at, one.layer)))
  return f"{said} (backward)" if said and one.is_backward else said
