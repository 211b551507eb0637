# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports of measured costs: how far off predictions were, what is lacking."""

from __future__ import annotations

from collections.abc import Iterator

import rich.console
import rich.table

from lagom_xla.costs import in_words
from lagom_xla.costs import measured as measured_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.profiling import costing as costing_lib
from lagom_xla.report.tables import table as table_lib


def show(console: rich.console.Console, costed: costing_lib.Costing) -> None:
  """Shows how far off the model was.

  Args:
    console: where.
    costed: the costs that a step is priced by.
  """
  console.print(_ratios(costed))


def notes(step: step_lib.Step, costed: costing_lib.Costing) -> Iterator[str]:
  """What is measured of a step, and what its trace lacks, in sentences."""
  by_name, by_work, scaled = costing_lib.num_priced(costed, step)
  num_kernels = by_name + by_work + scaled
  yield (
    f"Of {in_words.count(num_kernels, 'kernel')} {by_name:,} cost what the"
    f" profile measured alone, {by_work:,} what kernels of equal work did, and"
    f" {scaled:,} what is predicted, times the median of their kind"
  )
  if losses := costed.measured.losses:
    yield (
      f"{len(losses):,} pairs of a kernel's work and a collective lose what"
      f" they lost in the profile, {min(losses.values()):.2f} to"
      f" {max(losses.values()):.2f} times what the model says"
    )
  yield from _ranges(costed.measured)
  if costed.never_alone:
    yield (
      f"{in_words.count(costed.never_alone, 'kernel')} never ran alone in the"
      f" profile, such as {costed.never_alone[0]}"
    )
  if costed.not_run:
    yield (
      f"{len(costed.not_run):,} kernels and collectives of the profile's module"
      f" are not in its trace, such as {costed.not_run[0]}"
    )
  if costed.has_waits:
    yield (
      f"Of {in_words.count(costed.has_waits, 'collective')} the trace lacks"
      " ranks: what they take may be too long, with waits for those in it"
    )


def _ranges(measured: measured_lib.Measured) -> Iterator[str]:
  """How sure measured costs are, as far as the run tells."""
  for what, factors in (
    ("lone kernels take", measured.kernel_factors),
    ("collectives take", measured.collective_factors),
    ("whole steps take over their replay", measured.step_factors),
  ):
    if factors is None:
      yield (
        f"The run does not tell how sure it is of what {what}: the model's"
        " range stays"
      )
    else:
      high, low = factors
      yield (
        f"From step to step {what} {low:.3f} to {high:.3f} times what they cost"
        " here, 9 times in 10"
      )


def _ratios(costed: costing_lib.Costing) -> rich.table.Table:
  table = table_lib.new(
    "Measured over predicted, alone (without ranks' waits)",
    "kind",
    "number",
    "measured ms",
    "predicted ms",
    "least",
    "median",
    "most",
  )
  for ratio in costed.ratios:
    table.add_row(
      ratio.kind,
      f"{ratio.n:,}",
      in_words.ms(ratio.measured_us),
      in_words.ms(ratio.predicted_us),
      f"{ratio.low:.2f}",
      f"{ratio.median:.2f}",
      f"{ratio.high:.2f}",
    )
  return table
