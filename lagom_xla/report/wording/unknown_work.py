# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Calls of libraries, of which nothing is known but the bytes that they move.

Matrix factorizations, Fourier transforms, kernels that somebody wrote in Pallas
or Triton and calls into Python are costed by those bytes, which can be far too
little.
"""

from __future__ import annotations

from collections.abc import Mapping

from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.report.wording import instructions as instructions_lib

# Calls that take about as long as their bytes: sorts, norms and the like.
_BY_BYTES = ("__cub$", "__cudnn$norm", "__cudnn$softmax", "__gpu$TopK")
# More are counted, not named.
_MOST_NAMED = 3


def targets(step: step_lib.Step) -> Mapping[str, str]:
  """What is called, by the names of such calls that nobody measured."""
  kernels, module = step.analysis.kernels, step.analysis.module
  return {
    instruction.name: target
    for computation_id in module.executions
    for instruction in module.computations[computation_id].instructions
    if (kernel := kernels.get(instruction.id)) and kernel.category == "other"
    if _is_unknown(target := _target(instruction))
    if step.kernel_cost(kernel).source != "measured"
  }


def _target(instruction: hlo.Instruction) -> str:
  """What it calls; XLA calls cuFFT by an instruction of its own."""
  if instruction.opcode == "fft":
    return "fft"
  return instruction.custom_call_target


def _is_unknown(target: str) -> bool:
  return bool(target) and not target.startswith(_BY_BYTES)


def note(step: step_lib.Step) -> str:
  """What to know of a step with such calls, in a sentence; "" without one."""
  called = targets(step)
  if not called:
    return ""
  instructions = instructions_lib.of_step(step)
  named = []
  for name, target in called.items():
    source = instructions[name].source
    named.append(f"{target} ({source})" if source else target)
  words = in_words.first_of(list(dict.fromkeys(named)), _MOST_NAMED)
  return (
    f"Only the bytes of {in_words.count(called, 'library call')} are costed, so"
    f" that the step may take far longer: {words}. A --profile of a run has"
    " their times"
  )
