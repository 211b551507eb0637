# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trace of XLA:CPU: how long each instruction held a thread.

XLA:CPU marks every instruction that it runs with its name (hlo_op) and its
module's. A collective holds its thread until it is over, and so do small
kernels. A large product is handed to other threads, and what is marked is only
the handing over.
"""

from __future__ import annotations

from collections.abc import Mapping
import pathlib

import jax

from lagom_xla import errors

_PATTERN = "*.xplane.pb"
_PLANE = "/host:CPU"


def held_s(folder: pathlib.Path, module: str) -> Mapping[str, float]:
  """Seconds that each instruction of a module held a thread, by its name.

  The least of its executions: what a collective takes beyond that is waiting
  for others. Of several profiles in a folder the newest.

  Args:
    folder: what jax.profiler wrote to.
    module: name of the module.

  Raises:
    TraceError: there is no profile, or none of that module on a CPU.
  """
  files = sorted(folder.rglob(_PATTERN))
  if not files:
    raise errors.TraceError(
      f"{folder} has no XSpace ({_PATTERN}): give the folder that"
      " jax.profiler.trace wrote."
    )
  durations: dict[str, list[float]] = {}
  for plane in jax.profiler.ProfileData.from_file(str(files[-1])).planes:
    if plane.name != _PLANE:
      continue
    for line in plane.lines:
      for event in line.events:
        stats = dict(event.stats)
        if stats.get("hlo_module") == module and "hlo_op" in stats:
          name = str(stats["hlo_op"])
          durations.setdefault(name, []).append(event.duration_ns / 1e9)
  if not durations:
    raise errors.TraceError(
      f"{files[-1].name} has no instruction of {module}: trace a few of its"
      " steps."
    )
  return {name: min(all_) for name, all_ in durations.items()}
