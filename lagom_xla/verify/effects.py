# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The effect of a knob, seen in two schedules: one without it, one with it.

XLA accepts options that do nothing, on this version or on this module, and says
nothing about it. So each knob is checked in what XLA made of the module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
import dataclasses
import functools
import os

from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import debug_options
from lagom_xla.flags import probe
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.passes.program import form
from lagom_xla.passes.schedule import orders as orders_lib
from lagom_xla.search.xla import pruning

_ms = in_words.milliseconds


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
  """What one knob did.

  Attributes:
    knob: an XLA option, an environment variable, or a tuning key in words.
    value: what it was set to.
    acted: whether the step is another with it: its schedule or, of a NCCL
      setting, what NCCL does in one of its calls; also true of what acts after
      the schedule, which cannot show it.
    evidence: what was seen, in a sentence.
    replaces: what runs without it; "" where that has no value.
    without_us: predicted step time without it, the rest of the plan in place,
      in microseconds: of XLA's options under NCCL's own choices. None where it
      was not predicted.
    with_us: the same with it.
  """

  knob: str
  value: str
  acted: bool
  evidence: str
  replaces: str = ""
  without_us: float | None = None
  with_us: float | None = None

  @property
  def gain_us(self) -> float | None:
    """What the step loses without it; None where that was not predicted."""
    if self.without_us is None or self.with_us is None:
      return None
    return self.without_us - self.with_us


def of_difference(
  knob: str,
  value: str,
  without: overlap_lib.Analysis,
  with_it: overlap_lib.Analysis,
) -> Effect:
  """The effect of a knob that makes another schedule."""
  seen = "; ".join(_differences(without, with_it)) or _small_difference(
    without.module, with_it.module
  )
  unseen = "no effect: the schedule is the same without it"
  later = pruning.AFTER_THE_SCHEDULE.get(knob)
  if later:
    unseen = f"unseen: it says {later}, after the schedule"
  return Effect(
    knob=knob,
    value=value,
    acted=bool(seen or later),
    evidence=seen or unseen,
  )


def timed(
  effect: Effect, without: step_lib.Step, with_it: step_lib.Step
) -> Effect:
  """An effect with the predicted times of both steps, under NCCL's choices."""
  without_us, with_us = (
    step.timeline(step.default).step_time_us for step in (without, with_it)
  )
  return dataclasses.replace(effect, without_us=without_us, with_us=with_us)


def _small_difference(without: hlo.Module, with_it: hlo.Module) -> str:
  """What differs beside collectives and numbers of kernels; "" for nothing."""
  if plan_lib.fingerprint(without) == plan_lib.fingerprint(with_it):
    return ""
  if _instructions(without) == _instructions(with_it):
    return "the same collectives beside as many kernels, in another order"
  return "the same collectives beside as many kernels, which are others"


def _instructions(module: hlo.Module) -> Counter[tuple[str, str, bytes]]:
  return Counter(
    (i.opcode, i.custom_call_target, i.shape.SerializeToString())
    for c in module.computations.values()
    for i in c.instructions
  )


def _differences(
  without: overlap_lib.Analysis, with_it: overlap_lib.Analysis
) -> Iterator[str]:
  both = (without, with_it)
  kinds = sorted({c.kind for analysis in both for c in analysis.collectives})
  are_same = True
  for kind in kinds:
    old, new = (
      sorted(c.nccl_bytes for c in analysis.collectives if c.kind == kind)
      for analysis in both
    )
    if old != new:
      are_same = False
      yield f"{in_words.count(old, kind)} became {len(new)}{_largest(old, new)}"
  old, new = (sum(c.is_pipelined for c in a.collectives) for a in both)
  if old != new:
    words = "more" if new > old else "fewer"
    collectives = "collective" if abs(new - old) == 1 else "collectives"
    yield (
      f"{abs(new - old):,} {words} {collectives} pipelined over loop iterations"
    )
  old, new = (
    max((c.executions for c in a.collectives), default=0) for a in both
  )
  if old != new:
    yield f"loop bodies run {in_words.count(new, 'time')} instead of {old:,}"
  old, new = (len(analysis.kernels) for analysis in both)
  if old != new:
    yield f"{in_words.count(old, 'kernel')} became {new:,}"
  if are_same:
    yield from _moves(without, with_it)


def _moves(
  without: overlap_lib.Analysis, with_it: overlap_lib.Analysis
) -> Iterator[str]:
  """How many collectives run beside other numbers of kernels than before."""
  # By kind and in schedule order.
  old, new = (
    [
      len(analysis.kernels_beside[c.start_id])
      for c in sorted(analysis.collectives, key=lambda c: c.kind)
    ]
    for analysis in (without, with_it)
  )
  moved = sum(a != b for a, b in zip(old, new, strict=False))
  if moved:
    yield (
      f"{moved} of {in_words.count(new, 'collective')} moved: beside"
      f" {in_words.count(sum(new), 'kernel')} instead of {sum(old):,}"
    )


def _largest(old: list[int], new: list[int]) -> str:
  """How large the largest became; "" where there are none left to compare."""
  if not old or not new:
    return ""
  largest = in_words.megabytes(new[-1])
  if old[-1] == new[-1]:
    return f", the largest of {largest} as before"
  return f", the largest of {largest} (before {in_words.megabytes(old[-1])})"


def with_program_outcome(
  seen: Effect,
  outcome: form.Outcome,
  without: step_lib.Step,
  with_it: step_lib.Step,
) -> Effect:
  """The effect of a form with what it rewrote, and what that hides."""
  if not (seen.acted and outcome.actions):
    return seen
  first, *others = outcome.actions
  more = f" (and {len(others)} more)" if others else ""
  before, after = (s.timeline(s.default) for s in (without, with_it))
  return dataclasses.replace(
    seen,
    replaces="the program as written",
    without_us=before.step_time_us,
    with_us=after.step_time_us,
    evidence=(
      f"{first.removesuffix('.')}{more};"
      f" {_ms(before.total_exposed_us)} of collectives exposed became"
      f" {_ms(after.total_exposed_us)} (predicted, NCCL's defaults);"
      f" {seen.evidence}"
    ),
  )


def of_orders(
  orders: orders_lib.Orders,
  configuration: step_lib.Configuration,
  without: step_lib.Step,
  with_it: step_lib.Step,
) -> Effect:
  """What orders did, under NCCL settings of all of the step's tuning keys.

  `without` is the step in XLA's own order, `with_it` the same in these.
  """
  seen = of_difference(
    "order", orders_lib.in_words(orders), without.analysis, with_it.analysis
  )
  if not seen.acted:
    return seen
  before, after = (s.timeline(configuration) for s in (without, with_it))
  return dataclasses.replace(
    seen,
    replaces="XLA's own order",
    without_us=before.step_time_us,
    with_us=after.step_time_us,
    evidence=(
      f"{_ms(before.total_exposed_us)} of collectives exposed became"
      f" {_ms(after.total_exposed_us)}, and {_ms(before.total_slowdown_us)}"
      " that kernels lose to collectives beside them"
      f" {_ms(after.total_slowdown_us)} (predicted, the plan's NCCL settings);"
      f" {seen.evidence}"
    ),
  )


def replaced_value(name: str) -> str:
  """The value without a plan; "" for none, or why it is not known."""
  try:
    value = _options(os.environ.get("XLA_FLAGS", "")).get(name)
  except (errors.OptionsError, errors.ProbeError) as error:
    return f"what is not known, as {error}"
  return "" if value is None else str(value)


@functools.cache
def _options(xla_flags: str) -> Mapping[str, object]:
  """All options of the installed jaxlib that have a value, under XLA_FLAGS."""
  (answer,) = probe.ask([xla_flags])
  return debug_options.values(answer.compile_options)
