# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The losses of a step by collective: what waits for it, what it slows, why.

Waits and their reasons are those of `lagom-xla explain`.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import re

from lagom_xla.costs import contention
from lagom_xla.costs import step as step_lib
from lagom_xla.explain import explaining
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.explain import parts as parts_lib
from lagom_xla.explain import sentences
from lagom_xla.report.page import drawing
from lagom_xla.report.page import story as story_lib

# Collectives that are looked at, and rows that a page has for them.
_MOST_LOOKED_AT = 256
_MOST = 12
# Losses of a smaller share of the step are not explained.
_LEAST_SHARE = 5e-4

# What may differ in the kernels that alike collectives slow: figures, and
# numbers in names.
_DIGITS = re.compile(r"[\d.,]+")


def of_step(
  step: step_lib.Step,
  configuration: step_lib.Configuration,
  instructions: drawing.Instructions,
) -> tuple[story_lib.Collective, ...]:
  """The collectives that cost a step most, waits and slowed kernels together.

  Args:
    step: the step.
    configuration: the NCCL settings that it runs with.
    instructions: the step's, by name.
  """
  explained = explaining.of_run(step, configuration)
  least_us = _LEAST_SHARE * explained.step_us

  def num_channels(name: str) -> int:
    key = step.key_of[name]
    return step.predict(key, configuration[key]).num_channels

  ranked = sorted(explained.collectives, key=_cost_us, reverse=True)
  groups: dict[tuple[str, ...], list[explanation_lib.Collective]] = {}
  for one in ranked[:_MOST_LOOKED_AT]:
    label = drawing.label(one.name, instructions)
    key = (
      *(label.what, label.source),
      _mostly(one, least_us),
      _DIGITS.sub("", _slowed(step, one, num_channels(one.name), least_us)[1]),
    )
    groups.setdefault(key, []).append(one)
  found = [
    _collective(
      step, alike, num_channels(alike[0].name), instructions, least_us
    )
    for alike in groups.values()
  ]
  found.sort(key=lambda one: one.wait_us + one.slows_us, reverse=True)
  return tuple(found[:_MOST])


def _cost_us(one: explanation_lib.Collective) -> float:
  return one.exposed_us + one.slowed_us


def _mostly(one: explanation_lib.Collective, least_us: float) -> str:
  """The reason that most of its wait is due to; "" where that is too short."""
  if one.exposed_us < least_us or not one.parts:
    return ""
  return one.parts[0].reason


def _collective(
  step: step_lib.Step,
  alike: Sequence[explanation_lib.Collective],
  num_channels: int,
  instructions: drawing.Instructions,
  least_us: float,
) -> story_lib.Collective:
  """Collectives that are alike, in the words of the one that costs most."""
  first, *others = alike
  slowed, why_slows = _slowed(step, first, num_channels, least_us)
  wait_us = sum(one.exposed_us for one in alike)
  is_told = bool(_mostly(first, least_us))
  return story_lib.Collective(
    label=drawing.label(first.name, instructions),
    num_others=len(others),
    executions=sum(one.executions for one in alike),
    lone_us=sum(one.lone_us for one in alike),
    wait_us=wait_us,
    slows_us=sum(one.slowed_us for one in alike),
    why_waits=sentences.of_parts(wait_us, _parts(alike)) if is_told else "",
    slowed=slowed,
    why_slows=why_slows,
  )


def _parts(
  alike: Sequence[explanation_lib.Collective],
) -> tuple[explanation_lib.Part, ...]:
  """The parts of all, each in the words of the first that has it."""
  if len(alike) == 1:
    return alike[0].parts
  found: dict[parts_lib.Reason, explanation_lib.Part] = {}
  for one in alike:
    for part in one.parts:
      first = found.get(part.reason)
      us, words = 0.0, f"as in {one.name}, {part.sentence}"
      if first is not None:
        us, words = first.us, first.sentence
      found[part.reason] = dataclasses.replace(
        part, us=us + part.us, sentence=words
      )
  return tuple(sorted(found.values(), key=lambda part: -part.us))


def _slowed(
  step: step_lib.Step,
  one: explanation_lib.Collective,
  num_channels: int,
  least_us: float,
) -> tuple[str, str]:
  """The kernel that loses most to a collective, and why; "" for too little."""
  if one.slowed_us < least_us or not one.slows:
    return "", ""
  name = one.slows[0].kernel
  return name, _why_slows(step, name, num_channels)


def _why_slows(step: step_lib.Step, name: str, num_channels: int) -> str:
  """Why a kernel is slower beside a collective of so many channels."""
  kernel = next(k for k in step.analysis.kernels.values() if k.name == name)
  cost, gpu = step.kernel_cost(kernel), step.cluster.gpu
  alone = contention.num_waves(cost, gpu, 0)
  beside = contention.num_waves(cost, gpu, num_channels)
  takes = f"It takes {num_channels} of {gpu.num_sms} SMs"
  if beside > alone:
    return f"{takes}: {name} runs in {beside:,} waves instead of {alone:,}."
  return f"{takes}, which {name} can spare; they share memory bandwidth and L2."
