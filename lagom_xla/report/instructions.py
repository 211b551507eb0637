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
  for computation_id in analysis.module.executions:
    computation = analysis.module.computations[computation_id]
    for instruction in computation.instructions:
      kernel = analysis.kernels.get(instruction.id)
      copy = analysis.copies.get(instruction.id)
      started = analysis.started_by.get(instruction.id, ())
      for collective in started:
        # XLA adds some, and combines more: those near them tell the line.
        source = lines.of(computation, instruction)
        found[collective.name] = _collective(collective, source, platform)
      if copy:
        found[copy.name] = _copy(copy, lines.of_own(instruction))
      elif kernel:
        found[kernel.name] = _kernel(kernel, lines.of_own(instruction))
  return found


def _collective(
  collective: collectives_lib.Collective,
  source: source_lines.SourceLine,
  platform: str,
) -> Instruction:
  what = sentences.what(collective, platform)
  if collective.num_operands > 1:
    what += f", {collective.num_operands} arrays combined"
  return Instruction(
    what=what,
    kind=collective.kind,
    num_bytes=collective.nccl_bytes,
    executions=collective.executions,
    source=source,
  )


def _kernel(
  kernel: kernels_lib.Kernel, source: source_lines.SourceLine
) -> Instruction:
  what = f"{kernel.category} over {_mb(kernel.num_bytes)}"
  if kernel.matrix_shape is not None:
    batch, m, n, k = kernel.matrix_shape
    what = f"matrix product {m} x {n} x {k} in {kernel.element_type}"
    if batch > 1:
      what = f"{batch} matrix products {m} x {n} x {k} in {kernel.element_type}"
  return Instruction(
    what=what,
    kind=kernel.category,
    num_bytes=kernel.num_bytes,
    executions=kernel.executions,
    source=source,
  )


def _copy(
  copy: copies_lib.Copy, source: source_lines.SourceLine
) -> Instruction:
  if isinstance(copy, copies_lib.DeviceCopy):
    kind, way = "device copy", "on the device"
  else:
    kind, way = "host copy", "to the host" if copy.to_host else "from the host"
  return Instruction(
    what=f"copy of {_mb(copy.num_bytes)} {way}",
    kind=kind,
    num_bytes=copy.num_bytes,
    executions=copy.executions,
    source=source,
  )
