# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Devices that a lowered step leaves unused: they do what others do, too.

A step that is lowered outside the mesh or the axis rules that its model asks
for compiles all the same, with every array whole on every device. XLA says
nothing, and the step is as slow as on fewer devices.
"""

from __future__ import annotations

import math
import re
import warnings

import jax

# As Shardy writes it: sdy.mesh @mesh = <["data"=4, "model"=2]>.
_MESH = re.compile(r"sdy\.mesh @\w+ = <\[([^\]]*)\]")
_AXIS = re.compile(r'"([^"]+)"=(\d+)')
# An axis or part of one, in a sharding or among the axes that are manual.
_USE = re.compile(r'[\[{, ]"([^"]+)"(?!\s*=)')


def warn_of(lowered: jax.stages.Lowered, name: str) -> None:
  """Warns of mesh axes that no array is split over.

  Args:
    lowered: the step; of one that is lowered for GSPMD nothing is known.
    name: what the user calls it.
  """
  text = lowered.as_text()
  sizes = {
    axis: int(size)
    for mesh in _MESH.findall(text)
    for axis, size in _AXIS.findall(mesh)
    if int(size) > 1
  }
  used = set()
  for line in text.splitlines():
    if "sdy." in line and "sdy.mesh @" not in line:
      used.update(_USE.findall(line))
  unused = {axis: size for axis, size in sizes.items() if axis not in used}
  if not unused:
    return
  axes = ", ".join(f"{axis} ({size})" for axis, size in unused.items())
  warnings.warn(
    f"{name}: nothing is split over {axes} of its mesh, so"
    f" {math.prod(unused.values())} GPUs do the same work. If the step needs a"
    " mesh or axis rules around it, return a context manager that yields (step,"
    " arguments) from within them.",
    RuntimeWarning,
    stacklevel=2,
  )
