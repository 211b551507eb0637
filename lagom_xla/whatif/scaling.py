# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The scaling of a program: what of its work grows with the GPUs.

The user's code decides that, when it builds the step for the devices that it
gets. It is read from the FLOPs of all matrix products: a batch that grows with
the GPUs (weak scaling) leaves each GPU as many, one that stays (strong scaling)
leaves all of them together as many. Tokens or examples of a step are those that
the user gave for the first cluster, times as many FLOPs more.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses

from lagom_xla.whatif import comparison as comparison_lib

# What optimizers that work by matrix products, and padding, may add.
_ALIKE = 0.05


def with_per_step(
  rows: Sequence[comparison_lib.Row],
  base: comparison_lib.Row,
  per_step: float | None,
) -> tuple[comparison_lib.Row, ...]:
  """Rows with the tokens or examples of their steps.

  Args:
    rows: any.
    base: the row that the number is for.
    per_step: of a step there; None where it was not given.
  """
  if per_step is None or base.figures is None:
    return tuple(rows)
  found = []
  for row in rows:
    figures = row.figures
    if figures is not None:
      share = figures.flops / base.figures.flops if base.figures.flops else 1.0
      figures = dataclasses.replace(figures, per_step=per_step * share)
    found.append(dataclasses.replace(row, figures=figures))
  return tuple(found)


def in_words(rows: Sequence[comparison_lib.Row], unit: str | None) -> str:
  """How the program's work grows from the least to the most GPUs."""
  known = [row for row in rows if row.figures is not None]
  sizes = sorted(known, key=lambda row: row.num_gpus)
  least, most = sizes[0], sizes[-1]
  assert least.figures is not None and most.figures is not None
  if least.num_gpus == most.num_gpus:
    what = unit or "work"
    return (
      f"All have the same number of GPUs, {least.num_gpus:,}, and the same"
      f" {what} per step."
    )
  if not least.figures.flops:
    return (
      "The program has no matrix products to tell how its work grows with the"
      " GPUs: it is taken to do the same in a step on all."
    )
  gpus = most.num_gpus / least.num_gpus
  work = most.figures.flops / least.figures.flops
  span = f"from {least.num_gpus:,} to {most.num_gpus:,} GPUs"
  as_they_do = (
    f", and its {unit} per step are taken to grow as they do" if unit else ""
  )
  if abs(work / gpus - 1) <= _ALIKE:
    return (
      f"Weak scaling: {span} the program's matrix products grow with the"
      f" GPUs{as_they_do}."
    )
  if abs(work - 1) <= _ALIKE:
    too = f", and so do its {unit} per step" if unit else ""
    return (
      f"Strong scaling: {span} the program's matrix products stay the"
      f" same{too}."
    )
  change = f"grow {work:,.4g} times" if work > 1 else f"shrink to {work:.2%}"
  return (
    f"Mixed scaling: {span}, {gpus:,.4g} times as many, the program's matrix"
    f" products {change}{as_they_do}."
  )
