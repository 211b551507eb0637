# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Notes on scatters that can take much of a step where their indices repeat."""

from __future__ import annotations

import functools

from lagom_xla.costs import fusion
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import memory_access
from lagom_xla.passes import source_lines
from lagom_xla.report.wording import instructions as instructions_lib

# Shares of the step from which on a scatter is worth a note.
_NOTED_FROM = 0.05


def notes(step: step_lib.Step, step_time_us: float) -> list[str]:
  """What to know about each scatter that could take much of the step.

  Args:
    step: with the kernels.
    step_time_us: the whole step's.
  """
  gpu = step.cluster.gpu
  instructions = functools.cache(lambda: instructions_lib.of_step(step))
  found = []
  for kernel in step.analysis.kernels.values():
    scatter = kernel.scatter
    if scatter is None:
      continue
    worst_us = fusion.worst_scatter_us(scatter, gpu) * kernel.executions
    if worst_us > _NOTED_FROM * step_time_us:
      expected_us = step.kernel_cost(kernel).time_us * kernel.executions
      source = instructions()[kernel.name].source
      found.append(_note(kernel.name, source, scatter, expected_us, worst_us))
  return found


def _note(
  name: str,
  source: source_lines.SourceLine,
  scatter: memory_access.Scatter,
  expected_us: float,
  worst_us: float,
) -> str:
  """Times are per step."""
  return (
    f"{name}{f' ({source})' if source else ''} adds"
    f" {scatter.num_updates:,} updates of {scatter.window_elements:,}"
    f" {scatter.element_bits}-bit elements to {scatter.num_places:,} places by"
    " compare-and-swap, and updates of one place wait for each other:"
    f" {expected_us / 1e3:,.1f} ms per step if its indices repeat as the words"
    f" of a text do, {worst_us / 1e3:,.1f} ms if they are all the same"
    " (synthetic data, padding). 32-bit updates, a one-hot matrix product, or"
    " unique_indices=True where none repeats, avoid that."
  )
