# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The losses of a step by collective: what waits for it, what it slows, why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
import re

from lagom_xla.costs import contention
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import timeline as timeline_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.report import instructions as instructions_lib
from lagom_xla.report.page import drawing
from lagom_xla.report.page import story as story_lib

_ms = instructions_lib.milliseconds

# Collectives that are looked at, and rows that a page has for them.
_MOST_LOOKED_AT = 256
_MOST = 12
# Losses of a smaller share of the step are not explained.
_LEAST_SHARE = 5e-4

# What may differ in the reasons of collectives that are alike: figures, and
# numbers in the names of kernels.
_DIGITS = re.compile(r"[\d.,]+")


def of_step(
  step: step_lib.Step,
  configuration: step_lib.Configuration,
  replayed: timeline_lib.Timeline,
  instructions: drawing.Instructions,
) -> tuple[story_lib.Collective, ...]:
  """The collectives that cost a step most, waits and slowed kernels together.

  Args:
    step: the step.
    configuration: the NCCL settings that it runs with.
    replayed: it, under them.
    instructions: the step's, by name.
  """
  slowed: dict[str, dict[str, float]] = {}
  for (kernel, collective), us in replayed.slowdown_us.items():
    slowed.setdefault(collective, {})[kernel] = us

  def cost_us(collective: collectives_lib.Collective) -> float:
    waits_us = replayed.exposed_us.get(collective.name, 0.0)
    return waits_us + sum(slowed.get(collective.name, {}).values())

  least_us = _LEAST_SHARE * replayed.step_time_us
  found = [
    _collective(
      step,
      configuration,
      collective,
      replayed.exposed_us.get(collective.name, 0.0),
      slowed.get(collective.name, {}),
      instructions,
      least_us,
    )
    for collective in sorted(
      step.analysis.collectives, key=cost_us, reverse=True
    )[:_MOST_LOOKED_AT]
  ]
  return tuple(_grouped(found)[:_MOST])


def _grouped(
  found: Sequence[story_lib.Collective],
) -> list[story_lib.Collective]:
  """Collectives with those like them, those that cost most first."""
  groups: dict[tuple[str, ...], story_lib.Collective] = {}
  for one in found:
    key = (
      *(one.label.what, one.label.source),
      *(_DIGITS.sub("", why) for why in (one.why_waits, one.why_slows)),
    )
    first = groups.get(key)
    groups[key] = one if first is None else _together(first, one)
  return sorted(
    groups.values(), key=lambda one: one.wait_us + one.slows_us, reverse=True
  )


def _together(
  first: story_lib.Collective, other: story_lib.Collective
) -> story_lib.Collective:
  return dataclasses.replace(
    first,
    num_others=first.num_others + 1,
    executions=first.executions + other.executions,
    lone_us=first.lone_us + other.lone_us,
    wait_us=first.wait_us + other.wait_us,
    slows_us=first.slows_us + other.slows_us,
  )


def _collective(
  step: step_lib.Step,
  configuration: step_lib.Configuration,
  collective: collectives_lib.Collective,
  wait_us: float,
  slowed: Mapping[str, float],
  instructions: drawing.Instructions,
  least_us: float,
) -> story_lib.Collective:
  key = step.key_of[collective.name]
  cost = step.predict(key, configuration[key])
  lone_us = cost.time_us * collective.executions
  most = max(slowed, key=lambda name: slowed[name], default="")
  if sum(slowed.values()) < least_us:
    most = ""
  return story_lib.Collective(
    label=drawing.label(collective.name, instructions),
    num_others=0,
    executions=collective.executions,
    lone_us=lone_us,
    wait_us=wait_us,
    slows_us=sum(slowed.values()),
    why_waits=(
      _why_waits(step, collective, lone_us) if wait_us >= least_us else ""
    ),
    slowed=most,
    why_slows=_why_slows(step, most, cost.num_channels) if most else "",
  )


def _why_waits(
  step: step_lib.Step, collective: collectives_lib.Collective, lone_us: float
) -> str:
  beside = step.analysis.kernels_beside[collective.start_id]
  if collective.form == "sync":
    return "XLA runs nothing between its start and its done."
  kernels_us = sum(k.executions * step.kernel_cost(k).time_us for k in beside)
  own = f"it takes {_ms(lone_us)}"
  if not beside:
    return f"Its done follows with no kernel between them; {own}."
  hidden = f"The {len(beside):,} kernels beside it take"
  if len(beside) == 1:
    hidden = "The kernel beside it takes"
  if kernels_us < lone_us:
    return f"{hidden} {_ms(kernels_us)} alone, and {own}."
  return (
    f"{hidden} {_ms(kernels_us)} alone, more than its"
    f" {_ms(lone_us)}: it starts late, behind others on the"
    " communication stream, or kernels slow it."
  )


def _why_slows(step: step_lib.Step, name: str, num_channels: int) -> str:
  """Why a kernel is slower beside a collective of so many channels."""
  kernel = next(k for k in step.analysis.kernels.values() if k.name == name)
  cost, gpu = step.kernel_cost(kernel), step.cluster.gpu
  alone = contention.num_waves(cost, gpu, 0)
  beside = contention.num_waves(cost, gpu, num_channels)
  takes = f"takes {num_channels} of {gpu.num_sms} SMs"
  if beside > alone:
    waves = f"{alone} wave{'' if alone == 1 else 's'}"
    return f"It {takes}, which makes {beside} waves of {waves} of {name}."
  return (
    f"It {takes}, which {name} can spare; they share memory bandwidth and L2."
  )
