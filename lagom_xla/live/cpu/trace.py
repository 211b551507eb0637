# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trace of a step on XLA:CPU: one of its executions, and what it was made of.

Parts and whole are of the same execution. A collective takes several times as
long in one as in the next, by when the other processes come and by who else has
the cores, and so does the step: parts of one beside the time of another would
give what is left to products, which had no part in it.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
import dataclasses
import pathlib
import statistics
from typing import TYPE_CHECKING

from lagom_xla.passes import hlo

if TYPE_CHECKING:
  from lagom_xla.profiling import steps as steps_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Execution:
  """One execution of a step on one device.

  Attributes:
    step_s: seconds from its first instruction to the end of its last.
    held_s: seconds that an instruction took once, by its name. A collective's
      are with what it waited for other processes.
  """

  step_s: float
  held_s: Mapping[str, float]


def usual(folder: pathlib.Path, module: hlo.Module) -> Execution:
  """The execution of median time, of the newest profile in a folder.

  Args:
    folder: what jax.profiler wrote to.
    module: scheduled, as it ran.

  Raises:
    TraceError: there is no profile, or none of that module on a CPU.
  """
  from lagom_xla import profiling  # Not in the first call of every step.

  steps = sorted(profiling.read(folder, module).whole_steps, key=_time_us)
  step = steps[(len(steps) - 1) // 2]
  times_s = collections.defaultdict(list)
  for event in (*step.kernels, *step.collectives):
    times_s[event.name].append(event.time_us / 1e6)
  return Execution(
    step_s=_time_us(step) / 1e6,
    held_s={name: statistics.mean(each) for name, each in times_s.items()},
  )


def _time_us(step: steps_lib.DeviceStep) -> float:
  return step.end_us - step.begin_us
