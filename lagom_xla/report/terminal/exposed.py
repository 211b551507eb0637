# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Exposed time: the collectives that cost most, from which line, and why."""

from __future__ import annotations

from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import timeline as timeline_lib
from lagom_xla.report.page import losses
from lagom_xla.report.page import story as story_lib
from lagom_xla.report.terminal import screen
from lagom_xla.report.wording import instructions as instructions_lib

_ms = in_words.milliseconds
# Columns of a time.
_WIDE = 9


def section(
  step: step_lib.Step,
  configuration: step_lib.Configuration,
  replayed: timeline_lib.Timeline,
  when: str,
) -> screen.Section | None:
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
  found = losses.of_step(step, configuration, instructions)
  costly = [one for one in found if one.why_waits or one.slowed]
  if not costly:
    return screen.Section(head=screen.wrapped(f"{head}."))
  return screen.Section(
    head=(
      *screen.wrapped(f"{head}."),
      f"{'wait':>{_WIDE}}{'lose':>{_WIDE}}  ms per step, by collective of"
      f" {when}'s module",
    ),
    items=tuple(_item(one) for one in costly),
    least=1,
  )


def _item(one: story_lib.Collective) -> tuple[str, ...]:
  label = one.label
  times = "".join(
    f"{in_words.ms(us):>{_WIDE}}" for us in (one.wait_us, one.slows_us)
  )
  runs = f", {one.executions} runs" if one.executions > 1 else ""
  others = f" and {one.num_others} like it" if one.num_others else ""
  source = f" from {label.source}" if label.source else ""
  why = one.why_waits or one.why_slows
  return (
    *screen.wrapped(f"{times}  {label.what}{runs}", more=2 * _WIDE + 2),
    *screen.wrapped(f"{label.name}{others}{source}. {why}", indent=4, more=0),
  )
