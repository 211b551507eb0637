# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Notes on a step: what its figures rest on."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import source_lines
from lagom_xla.passes.schedule import memory
from lagom_xla.report.wording import today
from lagom_xla.report.wording import unknown_work

# More are counted, not named.
_MOST_NAMED = 5


def of_step(step: step_lib.Step) -> Iterator[str]:
  """What to know of a step's figures, in sentences."""
  module = step.analysis.module
  if note := today.note():
    yield f"{note}."
  if note := today.uncosted_of(step):
    yield f"{note}."
  if loops := _named(module, "while", module.loops_of_unknown_length):
    yield f"Counted once, as their trip counts are not known: {loops}."
  if conditionals := _named(module, "conditional"):
    yield (
      "Conditionals take their slowest branch each time, and totals count all"
      f" branches: {conditionals}."
    )
  if note := unknown_work.note(step):
    yield f"{note}."
  if count := len(memory.recomputed(module)):
    yield (
      f"{in_words.count(count, 'instruction')} run again, as memory is short:"
      " this is the compiled module, which XLA changed after its scheduler."
    )


def _named(
  module: hlo.Module, opcode: str, names: Collection[str] | None = None
) -> str:
  """Instructions that run, with their source lines; "" for none.

  Args:
    module: theirs.
    opcode: theirs.
    names: which of them; None for all.
  """
  lines = source_lines.SourceLines(module)
  found = []
  for computation_id in module.executions:
    for instruction in module.computations[computation_id].instructions:
      if instruction.opcode != opcode:
        continue
      if names is None or instruction.name in names:
        source = lines.of_own(instruction)
        at = f" ({source})" if source else ""
        found.append(f"{instruction.name}{at}")
  return in_words.first_of(found, _MOST_NAMED)
