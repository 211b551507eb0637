# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Loops of a schedule whose trip counts cannot be read from it.

Such a loop is counted once, so that the time of the schedule is not known.
"""

from __future__ import annotations

from lagom_xla.passes import hlo


def new_in(module: hlo.Module, default: hlo.Module) -> str | None:
  """The name of such a loop that a default schedule has not; None if none."""
  known = _by_place(default)
  return next(
    (name for place, name in _by_place(module).items() if place not in known),
    None,
  )


def _by_place(module: hlo.Module) -> dict[str, str]:
  """Their names, by where they come from, which copies of a loop share."""
  unknown = module.loops_of_unknown_length
  return {
    loop.metadata.op_name or loop.name: loop.name
    for computation in module.computations.values()
    for loop in computation.loops
    if loop.name in unknown
  }
