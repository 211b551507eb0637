# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Descriptions of instructions, with their source lines.

instructions.of_step(step)["all-gather-start.1"].what
# "all-gather of 34.6 MB over 8 GPUs"
instructions.of_step(step)["all-gather-start.1"].moves
# "parameter params['wq'] bf16[4096,4096]"
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses

from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.explain import sentences
from lagom_xla.passes import copies as copies_lib
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.passes import provenance
from lagom_xla.passes import source_lines


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Instruction:
  """The description of a kernel, a collective or a copy."""

  what: str
  moves: str = ""
  num_bytes: int
  executions: int
  source: source_lines.SourceLine

  @property
  def words(self) -> str:
    """The description, with the arrays that it moves."""
    return ": ".join(filter(None, (self.what, self.moves)))


def of_step(step: step_lib.Step) -> Mapping[str, Instruction]:
  """Kernels, collectives and copies of a step, by name."""
  found = dict(of_analysis(step.analysis))
  for one in step.analysis.collectives:
    if (by := step.run_by(one)) != "NCCL":
      told = found[one.name]
      what = f"{told.what}, by {in_words.run_by(by)}"
      found[one.name] = dataclasses.replace(told, what=what)
  return found


def of_analysis(
  analysis: overlap_lib.Analysis, platform: str = "GPU"
) -> Mapping[str, Instruction]:
  """Kernels, collectives and copies of a module, by name.

  Args:
    analysis: the analysis of the module.
    platform: the platform that it runs on, "GPU" or "CPU".
  """
  lines = source_lines.SourceLines(analysis.module)
  arrays = provenance.of(analysis.module)
  by_name: dict[str, Instruction] = {}
  for computation_id in analysis.module.executions:
    computation = analysis.module.computations[computation_id]
    for instruction in computation.instructions:
      started = analysis.started_by.get(instruction.id, ())
      for one in started:
        what = sentences.what(one, platform)
        if started[1:]:
          what += f", one of {len(started)} that start together"
        if one.num_operands > 1:
          what += f", {one.num_operands} arrays combined"
        by_name[one.name] = Instruction(
          what=what,
          moves=sentences.moved(arrays.moved(one)),
          num_bytes=one.nccl_bytes,
          executions=one.executions,
          # Collectives that XLA adds or combines have their neighbors' line.
          source=lines.of(computation, instruction),
        )
      one = analysis.copies.get(instruction.id) or analysis.kernels.get(
        instruction.id
      )
      if one is not None:
        by_name[one.name] = Instruction(
          what=_what(one),
          num_bytes=one.num_bytes,
          executions=one.executions,
          source=lines.of_own(instruction),
        )
  return by_name


def _what(one: kernels_lib.Kernel | copies_lib.Copy) -> str:
  size = in_words.megabytes(one.num_bytes)
  if isinstance(one, copies_lib.Copy):
    ways = {None: "on the device", True: "to the host", False: "from the host"}
    return f"copy of {size} {ways[one.to_host]}"
  if one.matrix_shape is None:
    return f"{one.category} over {size}"
  batch, m, n, k = one.matrix_shape
  what = "matmul" if batch <= 1 else f"{batch} matmuls"
  return f"{what} {m} x {n} x {k} in {one.element_type}"
