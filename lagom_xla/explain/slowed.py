# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Kernels that collectives slow, with the lines that they come from."""

from __future__ import annotations

from collections.abc import Mapping

from lagom_xla.explain import alike
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.passes import source_lines


def by_collective(
  ran: alike.Ran, lines: source_lines.SourceLines
) -> Mapping[str, list[explanation_lib.Slowed]]:
  """The kernels that each collective slows, those that lose most first."""
  sources = {}
  for computation in ran.step.analysis.sequences:
    for instruction in computation.instructions:
      if instruction.id in ran.step.analysis.kernels:
        sources[instruction.name] = instruction
  ranked = sorted(ran.replayed.slowdown_us.items(), key=lambda item: -item[1])
  found: dict[str, list[explanation_lib.Slowed]] = {}
  for (kernel, collective), us in ranked:
    source = str(lines.of_own(sources[kernel]))
    slowed = explanation_lib.Slowed(kernel=kernel, source=source, us=us)
    found.setdefault(collective, []).append(slowed)
  return found
