# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Explanations for the terminal: of a step, or of one collective of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import rich.console
import rich.table

from lagom_xla.costs import in_words
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.explain import sentences
from lagom_xla.report import layout

_ms = in_words.milliseconds
# Less is 0.00 ms.
_LEAST_US = 0.5
# The whole is at most 40 lines.
_MOST_REASONS = 6
_MOST_COLLECTIVES = 8
_MOST_LEFT = 2


def show(
  console: rich.console.Console,
  explanation: explanation_lib.Explanation,
  *,
  asked: str,
) -> None:
  """Shows why a step's collectives are exposed."""
  lines = layout.Lines(console)
  before, after = explanation.before, explanation.after
  if not before.collectives:
    lines.say(
      f"{explanation.module_name} on {explanation.cluster} has no collective,"
      f" so none is exposed in its step of {_ms(before.step_us)}"
      f" ({explanation.basis})."
    )
    return
  exposed = [c for c in before.collectives if c.exposed_us > 0]
  for text in _verdict(explanation, len(exposed)):
    lines.say(text)
  if not exposed:
    return
  lines.table(_reasons([before] if after is None else [before, after]))
  lines.table(_exposed_most(exposed))
  left = [
    f"{one.name} for {_ms(one.exposed_us)} ({_mostly(one)})"
    for one in (after.collectives[:_MOST_LEFT] if after else ())
    if one.exposed_us >= _LEAST_US
  ]
  if left:
    lines.say(f"Exposed most with the plan: {', '.join(left)}.")
  first = exposed[0]
  lines.say(f"{first.name} is exposed most. {first.why}")
  lines.say(f"`{asked} {first.name}` says more of it.")


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


def _reasons(steps: Sequence[explanation_lib.Step]) -> rich.table.Table:
  """Why they wait: in one step, or today and with the plan."""

  def is_shown(us: float) -> bool:
    """Whether it is more than nothing with the digits that it is shown by."""
    return in_words.ms(us) != in_words.ms(0.0)

  times_us = {
    reason: [step.reasons_us.get(reason, 0.0) for step in steps]
    for reason in sentences.REASONS
  }
  ranked = sorted(
    (reason for reason, us in times_us.items() if any(map(is_shown, us))),
    key=lambda reason: -max(times_us[reason]),
  )
  rows = [
    (sentences.REASONS[reason], *map(in_words.ms, times_us[reason]))
    for reason in ranked[:_MOST_REASONS]
  ]
  rest_us = [
    step.unexplained_us
    + sum(times_us[reason][index] for reason in ranked[_MOST_REASONS:])
    for index, step in enumerate(steps)
  ]
  if any(map(is_shown, rest_us)):
    rows.append(("all others", *map(in_words.ms, rest_us)))
  columns = ("reason", "today", "with the plan")[: len(steps) + 1]
  return layout.table("Why they wait (ms per step)", columns, rows)


def _exposed_most(
  exposed: Sequence[explanation_lib.Collective],
) -> rich.table.Table:
  left = len(exposed) - _MOST_COLLECTIVES
  return layout.table(
    "Exposed most (ms per step)",
    ("collective", "ms", "mostly", "from"),
    (
      (one.name, in_words.ms(one.exposed_us), _mostly(one), one.at)
      for one in exposed[:_MOST_COLLECTIVES]
    ),
    texts=(0, 2, 3),
    caption=f"and {left:,} more" if left > 0 else None,
  )


def _mostly(one: explanation_lib.Collective) -> str:
  return (
    sentences.REASONS[one.parts[0].reason] if one.parts else "not looked at"
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
  lines = layout.Lines(console)
  step, one = explanation_lib.find(explanation, name)
  with_plan = " with the plan" if step is explanation.after else ""
  lines.say(
    f"{one.name} is exposed {_ms(one.exposed_us)} of the {_ms(one.lone_us)}"
    f" that it takes alone, in a step of {_ms(step.step_us)}{with_plan}"
    f" ({explanation.basis})."
  )
  runs = "once" if one.executions == 1 else f"{one.executions:,} times"
  combined = f", {one.num_arrays} arrays combined" * (one.num_arrays > 1)
  lines.say(
    f"{one.what}{combined}, {one.form}, {runs} per step, in {one.computation}"
  )
  if source := ", ".join(filter(None, (one.at, one.layer))):
    lines.say(f"from {source}{' (backward)' * one.is_backward}")
  if one.sync_because:
    lines.say(f"It is sync: {one.sync_because}.")
  if one.parts:
    lines.table(_parts(one))
  if one.slowed_us >= _LEAST_US:
    lines.table(
      layout.table(
        f"It slows kernels by {_ms(one.slowed_us)} per step",
        ("kernel", "ms", "from"),
        (
          (slowed.kernel, in_words.ms(slowed.us), slowed.source)
          for slowed in one.slows
          if slowed.us >= _LEAST_US
        ),
        texts=(0, -1),
      )
    )
  if one.with_plan is not None:
    lines.say(f"The plan: {one.with_plan.sentence}")
  for advice in one.advice:
    lines.say(advice)


def _parts(one: explanation_lib.Collective) -> rich.table.Table:
  """Why it is exposed."""
  caption = None
  if one.unhideable_us is not None and one.hideable_us is not None:
    caption = (
      f"Kernels that could run beside it: {_ms(one.hideable_us)}; exposed"
      f" in any order of these instructions: {_ms(one.unhideable_us)}"
    )
  return layout.table(
    "Why it is exposed (ms per step)",
    ("reason", "ms", ""),
    (
      *(
        (sentences.REASONS[part.reason], in_words.ms(part.us), part.sentence)
        for part in one.parts
        if part.us >= _LEAST_US
      ),
      ("= exposed", in_words.ms(one.exposed_us)),
    ),
    texts=(0, -1),
    caption=caption,
  )
