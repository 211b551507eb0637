# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Explanations for the terminal: of a step, or of one of its collectives.

layout.say(console, *explanations.of_step(explanation, command))
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Sequence

import rich.table

from lagom_xla.costs import in_words
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.explain import sentences
from lagom_xla.report import layout

_Told = Iterator[str | rich.table.Table]

_ms = in_words.milliseconds
# Shorter times would show as 0.00 ms.
_LEAST_US = 0.5
# Limits that keep the whole explanation within 40 lines.
_MOST_REASONS = 6
_MOST_COLLECTIVES = 8
_MOST_LEFT = 2


def of_step(explanation: explanation_lib.Explanation, command: str) -> _Told:
  """Why a step's collectives are exposed.

  `command` is the command that ran; users may add a collective to it.
  """
  before, after = explanation.before, explanation.after
  name = f"{explanation.module_name} on {explanation.cluster}"
  hidden = in_words.some(explanation.calls_that_may_communicate)
  if not before.collectives and hidden:
    yield (
      f"{name}: the step takes {_ms(before.step_us)} or more"
      f" ({explanation.basis}). It has no visible collective, but {hidden} may"
      " communicate; the waits inside such calls are unknown."
    )
    return
  if not before.collectives:
    yield (
      f"{name}: the step takes {_ms(before.step_us)} ({explanation.basis}) and"
      " has no collective to wait for."
    )
    yield from _copies(before, after)
    return
  exposed = [c for c in before.collectives if c.exposed_us > 0]
  yield (
    f"{name}: kernels wait {_ms(before.exposed_us)} of a step of"
    f" {_ms(before.step_us)}, for {len(exposed):,} of"
    f" {in_words.count(before.collectives, 'collective')}"
    f" ({explanation.basis})."
  )
  if hidden:
    yield f"{hidden} may contain other collectives, which lagom_xla cannot see."
  steps, modules = [before], "this module"
  if after is not None:
    yield (
      f"With the plan they wait {_ms(after.exposed_us)} of"
      f" {_ms(after.step_us)}."
    )
    # A plan's module may have shorter kernels than what runs today.
    steps, modules = [before, after], "today's module and the plan's"
  yield from _copies(before, after)
  yield (
    f"Lower bound: {_ms(min(step.lower_bound_us for step in steps))} for"
    f" {modules}, in any order and with any NCCL settings."
  )
  if routes := in_words.run_otherwise(
    (one.kind, one.run_by, one.num_sms)
    for one in before.collectives
    if one.run_by != "NCCL"
  ):
    yield f"NCCL settings do not affect {routes}."
  yield from map(str, explanation.advice)
  if not exposed:
    return
  yield _reasons(steps)
  hidden = len(exposed) - _MOST_COLLECTIVES
  yield layout.table(
    "Longest waits (ms per step)",
    ("collective", "ms", "mainly because", "moves", "from"),
    (
      (one.name, in_words.ms(one.exposed_us), _mostly(one), *_moves(one))
      for one in exposed[:_MOST_COLLECTIVES]
    ),
    texts=(0, 2, 3, 4),
    caption=f"and {hidden:,} more" if hidden > 0 else None,
  )
  remaining = [
    f"{one.name} for {_ms(one.exposed_us)} ({_mostly(one)})"
    for one in (after.collectives[:_MOST_LEFT] if after else ())
    if one.exposed_us >= _LEAST_US
  ]
  if remaining:
    yield f"Longest waits with the plan: {', '.join(remaining)}."
  if after is not None:
    exposed = [c for c in after.collectives if c.exposed_us >= _LEAST_US]
    if not exposed:
      return
  first, chosen = _first(exposed)
  yield f"Begin with {first.name}{chosen}: {first.why}"
  yield from first.advice[:1]
  # Names change from compile to compile; today's are looked up first.
  names = [
    one.name
    for one in before.collectives
    if one.with_plan is not None and first.name in one.with_plan.names
  ]
  name = first.name if first.name in names or not names else names[0]
  yield f"For details: `{command} {name}`"


def _copies(
  before: explanation_lib.Step, after: explanation_lib.Step | None
) -> Iterator[str]:
  """The waits for copies, if there are any."""
  if max(step.copy_wait_us for step in (before, after) if step) < _LEAST_US:
    return
  plan = f", {_ms(after.copy_wait_us)} with the plan" if after else ""
  yield (
    f"Kernels also wait {_ms(before.copy_wait_us)} for asynchronous copies"
    f" within GPUs or to their hosts{plan}."
  )


def _first(
  exposed: Sequence[explanation_lib.Collective],
) -> tuple[explanation_lib.Collective, str]:
  """The longest wait for the most costly reason, and why it is chosen.

  Collectives with advice come before those without.
  """
  advised = [one for one in exposed if one.advice]
  some = advised or exposed
  times_us = collections.defaultdict[str, float](float)
  for one in some:
    times_us[_mostly(one)] += one.exposed_us
  costliest = max(times_us, key=lambda reason: times_us[reason])
  first = next(one for one in some if _mostly(one) == costliest)
  if first == exposed[0]:
    return first, ""
  if first == some[0]:
    return first, ", the longest wait with a remedy"
  return first, ", the longest wait for the costliest reason"


def _reasons(steps: Sequence[explanation_lib.Step]) -> rich.table.Table:
  """The reasons for waits, in one step or today and with the plan."""
  times_us = {
    words: [step.reasons_us.get(reason, 0.0) for step in steps]
    for reason, words in sentences.REASONS.items()
  }
  ranked = sorted(times_us, key=lambda words: -max(times_us[words]))
  few = ranked[_MOST_REASONS:]
  times_us["all others"] = [
    step.unexplained_us + sum(times_us[words][index] for words in few)
    for index, step in enumerate(steps)
  ]
  rows = [
    (words, *map(in_words.ms, times_us[words]))
    for words in (*ranked[:_MOST_REASONS], "all others")
  ]
  columns = ("reason", "today", "with the plan")[: len(steps) + 1]
  nothing = in_words.ms(0.0)
  shown = (row for row in rows if any(cell != nothing for cell in row[1:]))
  return layout.table("Why they wait (ms per step)", columns, shown)


def _moves(one: explanation_lib.Collective) -> tuple[str, str]:
  """The arrays that a collective moves, and its source line."""
  return ", ".join(dict.fromkeys(array.kind for array in one.moves)), one.at


def _mostly(one: explanation_lib.Collective) -> str:
  return sentences.REASONS[one.parts[0].reason] if one.parts else "not examined"


def of_collective(explanation: explanation_lib.Explanation, name: str) -> _Told:
  """Why one collective is exposed, and advice.

  Raises:
    UnknownCollectiveError: no collective has that name.
  """
  step, one = explanation_lib.find(explanation, name)
  with_plan = " with the plan" if step is explanation.after else ""
  yield (
    f"Kernels wait {_ms(one.exposed_us)} for {one.name}, which takes"
    f" {_ms(one.lone_us)} alone, in a step of {_ms(step.step_us)}{with_plan}"
    f" ({explanation.basis})."
  )
  runs = "once" if one.executions == 1 else f"{one.executions:,} times"
  combined = f", {one.num_arrays} arrays combined" * (one.num_arrays > 1)
  yield (
    f"{one.what}{combined}, {one.form}, {runs} per step, in {one.computation}"
  )
  if moves := sentences.moved(one.moves, is_told=True):
    yield f"moves {moves}"
  if source := ", ".join(filter(None, (one.at, one.layer))):
    yield f"from {source}{' (backward)' * one.is_backward}"
  if one.run_by != "NCCL":
    yield (
      f"It is run by {in_words.run_by(one.run_by)}"
      f" ({in_words.sm_range([one.num_sms])}): NCCL settings do not affect it."
    )
  if one.parts:
    rows = _rows(
      (sentences.REASONS[p.reason], p.us, p.sentence) for p in one.parts
    )
    yield layout.table(
      "Why kernels wait for it (ms per step)",
      ("reason", "ms", ""),
      (*rows, ("= wait", in_words.ms(one.exposed_us))),
      texts=(0, -1),
      caption=(
        f"Independent kernels, which could hide it:"
        f" {_ms(one.hideable_us or 0.0)}; wait in the best order of these"
        f" instructions: {_ms(one.unhideable_us or 0.0)}"
      ),
    )
  if one.slowed_us >= _LEAST_US:
    yield layout.table(
      f"It slows kernels by {_ms(one.slowed_us)} per step",
      ("kernel", "ms", "from"),
      _rows((slowed.kernel, slowed.us, slowed.source) for slowed in one.slows),
      texts=(0, -1),
    )
  if one.with_plan is not None:
    yield f"The plan: {one.with_plan.sentence}"
  if any(array.kind == "activation" for array in one.moves):
    yield from (str(a) for a in explanation.advice if a.about == "Activations")
  yield from one.advice


def _rows(
  found: Iterable[tuple[str, float, str]],
) -> Iterator[tuple[str, str, str]]:
  """The rows whose time does not round to zero."""
  for name, us, words in found:
    if us >= _LEAST_US:
      yield name, in_words.ms(us), words
