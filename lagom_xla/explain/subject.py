# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The subject of an explanation: a collective with all that is known of it."""

from __future__ import annotations

import dataclasses

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.explain import parts as parts_lib
from lagom_xla.explain import places
from lagom_xla.explain import words
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.passes import source_lines


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
  """A collective that is exposed.

  Attributes:
    step: that it is part of.
    collective: itself.
    place: in its computation.
    parts: of what is exposed of it.
    lines: of the step's module.
    setting: what NCCL runs it with.
    is_latency_hidden: whether XLA's latency-hiding scheduler made the schedule.
  """

  step: step_lib.Step
  collective: collectives_lib.Collective
  place: places.Place
  parts: parts_lib.Parts
  lines: source_lines.SourceLines
  setting: collective_lib.Setting
  is_latency_hidden: bool

  @property
  def key(self) -> collective_lib.TuningKey:
    """Its tuning key."""
    return self.step.key_of[self.collective.name]

  @property
  def lone_us(self) -> float:
    """One run of it alone."""
    return self.step.predict(self.key, self.setting).time_us

  @property
  def maker(self) -> hlo.Instruction | None:
    """The instruction that makes its last operand; None if none here does."""
    return self._at(self.place.span.ready)

  @property
  def user(self) -> hlo.Instruction | None:
    """The instruction that needs its result first; None if none here does."""
    return self._at(self.place.span.used)

  def kernel(
    self, instruction: hlo.Instruction | None
  ) -> kernels_lib.Kernel | None:
    """The kernel that an instruction launches, if it does."""
    kernels = self.step.analysis.kernels
    return None if instruction is None else kernels.get(instruction.id)

  def named(self, instruction: hlo.Instruction) -> str:
    """An instruction's name, with its source line if it has one."""
    at = words.place(self.lines.of_own(instruction))
    return f"{instruction.name} ({at})" if at else instruction.name

  def _at(self, position: int) -> hlo.Instruction | None:
    instructions = self.place.computation.instructions
    if 0 <= position < len(instructions):
      return instructions[position]
    return None
