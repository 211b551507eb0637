# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""An instruction in words: what it does, and which source line it is from.

instructions.of_step(step)["all-gather-start.1"].what
# "all-gather of 34.6 MB over 8 GPUs"
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses

from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.explain import sentences
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import copies as copies_lib
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.passes import source_lines

_mb = in_words.megabytes


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Instruction:
  """What a reader is told of a kernel, a collective or a host copy.

  Attributes:
    what: it does, in a few words.
    kind: a kernel's category, a collective's HLO opcode, or "host copy".
    num_bytes: that it moves, per execution.
    executions: times it runs per step.
    source: where it comes from.
  """

  what: str
  kind: str
  num_bytes: int
  executions: int
  source: source_lines.SourceLine


def of_step(step: step_lib.Step) -> Mapping[str, Instruction]:
  """Kernels, collectives and copies of a step, by name."""
  return of_analysis(step.analysis)


def of_analysis(
  analysis: overlap_lib.Analysis, platform: str = "GPU"
) -> Mapping[str, Instruction]:
  """The same of a module, which runs on GPUs or on CPUs."""
  lines = source_lines.SourceLines(analysis.module)
  found: dict[str, Instruction] = {}

  def tell(
    one: collectives_lib.Collective | kernels_lib.Kernel | copies_lib.Copy,
    what: str,
    kind: str,
    num_bytes: int,
    source: source_lines.SourceLine,
  ) -> None:
    found[one.name] = Instruction(
      what=what,
      kind=kind,
      num_bytes=num_bytes,
      executions=one.executions,
      source=source,
    )

  for computation_id in analysis.module.executions:
    computation = analysis.module.computations[computation_id]
    for instruction in computation.instructions:
      for one in analysis.started_by.get(instruction.id, ()):
        # XLA adds some, and combines more: those near them tell the line.
        source = lines.of(computation, instruction)
        what = sentences.what(one, platform)
        if one.num_operands > 1:
          what += f", {one.num_operands} arrays combined"
        tell(one, what, one.kind, one.nccl_bytes, source)
      if copy := analysis.copies.get(instruction.id):
        own = lines.of_own(instruction)
        tell(copy, *_copy(copy), copy.num_bytes, own)
      elif kernel := analysis.kernels.get(instruction.id):
        own = lines.of_own(instruction)
        tell(kernel, _kernel(kernel), kernel.category, kernel.num_bytes, own)
  return found


def _kernel(kernel: kernels_lib.Kernel) -> str:
  if kernel.matrix_shape is None:
    return f"{kernel.category} over {_mb(kernel.num_bytes)}"
  batch, m, n, k = kernel.matrix_shape
  what = "matrix product" if batch <= 1 else f"{batch} matrix products"
  return f"{what} {m} x {n} x {k} in {kernel.element_type}"


def _copy(copy: copies_lib.Copy) -> tuple[str, str]:
  """What it does, and its kind."""
  if isinstance(copy, copies_lib.DeviceCopy):
    kind, way = "device copy", "on the device"
  else:
    kind, way = "host copy", "to the host" if copy.to_host else "from the host"
  return f"copy of {_mb(copy.num_bytes)} {way}", kind
