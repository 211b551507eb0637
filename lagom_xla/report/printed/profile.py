# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A profile in JSON: the overlaps of a run as they were measured.

What `lagom-xla profile --format=json` prints.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from lagom_xla import validation
from lagom_xla.profiling import overlaps as overlaps_lib
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.report.wording import profile_notes


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Process:
  """A process of the run.

  Attributes:
    name: of its file.
    offset_us: what was added to its times, so that collectives end together.
  """

  name: str
  offset_us: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
  """A run as it was measured; times of a step are means of steps and devices.

  Attributes:
    module: name of the module that ran.
    platform: `GPU` or `CPU`: what it ran on.
    num_steps: whole steps in the trace, those of all devices together.
    step_us: median time of a step.
    kernel_us: time per step that kernels ran.
    exposed_us: time that a collective ran and no kernel did.
    gap_us: time that neither ran.
    slowdown_us: what kernels lost to collectives, where their lone times are
      known.
    collectives: those that are exposed longest first.
    slowdowns: kernels of equal work beside a collective, the largest losses
      first.
    devices: GPUs in the order of processes and numbers, or devices of CPUs in
      that of their numbers.
    processes: in the order of their files.
    notes: what the trace lacks, in sentences.
  """

  __pydantic_config__ = validation.STRICT

  module: str
  platform: str
  num_steps: int
  step_us: float
  kernel_us: float
  exposed_us: float
  gap_us: float
  slowdown_us: float
  collectives: tuple[overlaps_lib.CollectiveRow, ...]
  slowdowns: tuple[overlaps_lib.Slowdown, ...]
  devices: tuple[overlaps_lib.DeviceRow, ...]
  processes: tuple[Process, ...]
  notes: tuple[str, ...]


def of_profile(profile: profile_lib.Profile) -> Profile:
  """What is to be said of a run."""
  overlaps = overlaps_lib.of_profile(profile)
  trace = profile.trace
  return Profile(
    module=profile.analysis.module.name,
    platform=trace.platform,
    num_steps=len(profile.whole_steps),
    step_us=overlaps.step_us,
    kernel_us=overlaps.kernel_us,
    exposed_us=overlaps.exposed_us,
    gap_us=overlaps.gap_us,
    slowdown_us=overlaps.slowdown_us,
    collectives=overlaps.collectives,
    slowdowns=overlaps.slowdowns,
    devices=overlaps.devices,
    processes=tuple(
      Process(name=process.name, offset_us=offset_us)
      for process, offset_us in zip(
        trace.processes, profile.offsets_us, strict=True
      )
    ),
    notes=tuple(profile_notes.of_profile(profile)),
  )


def schema() -> dict[str, Any]:
  """The JSON schema of `lagom-xla profile --format=json`."""
  return validation.schema(Profile)
