# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Results about measured runs, as commands print them with --format=json.

`Profile` defines a JSON schema, as the dataclasses in results.py do.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses

from lagom_xla import validation
from lagom_xla.costs import measured as measured_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.profiling import costing as costing_lib
from lagom_xla.profiling import overlaps as overlaps_lib
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.report import notes as notes_lib


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredCosts:
  """The measured costs of a profile that a step's prediction uses.

  Factors are ranges of measured over predicted time between steps, which hold 9
  times in 10, high end first; None if the run does not show them.

  Attributes:
    ratios: measured over predicted times, by kind.
    num_kernels_by_name: kernels with their own lone time from the profile.
    num_kernels_by_work: kernels with the time of kernels of equal work.
    num_kernels_scaled: kernels with a predicted time, scaled by the median
      ratio of their kind.
    num_pairs: pairs of a kernel's work and a collective whose slowdown was
      measured.
    measured_shares: kind of kernel or collective -> the measured share of its
      time in the step, without contention.
    kernel_factors: factors of kernels alone.
    collective_factors: factors of collectives.
    step_factors: factors of complete steps, over their replay.
    gap_us: time between one kernel and the next; None if unknown.
    never_alone: kernels that never ran alone, like all kernels of equal work.
    not_run: kernels and collectives of the module that the trace lacks.
    has_waits: collectives whose times may include waits for ranks that the
      trace lacks.
  """

  ratios: tuple[costing_lib.Ratio, ...]
  num_kernels_by_name: int
  num_kernels_by_work: int
  num_kernels_scaled: int
  num_pairs: int
  measured_shares: Mapping[str, float]
  kernel_factors: measured_lib.Factors | None
  collective_factors: measured_lib.Factors | None
  step_factors: measured_lib.Factors | None
  gap_us: float | None
  never_alone: tuple[str, ...]
  not_run: tuple[str, ...]
  has_waits: tuple[str, ...]


def measured_costs(
  step: step_lib.Step, costed: costing_lib.Costing
) -> MeasuredCosts:
  """The measured costs of a step that is priced by a profile."""
  by_name, by_work, scaled = costing_lib.num_priced(costed, step)
  return validation.convert(
    MeasuredCosts,
    costed.measured,
    ratios=costed.ratios,
    num_kernels_by_name=by_name,
    num_kernels_by_work=by_work,
    num_kernels_scaled=scaled,
    num_pairs=len(costed.measured.losses),
    measured_shares=step_lib.measured_shares(step),
    never_alone=costed.never_alone,
    not_run=costed.not_run,
    has_waits=costed.has_waits,
  )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Process:
  """A process of the run.

  Attributes:
    name: name of its file.
    offset_us: offset added to its times so that collectives end together.
  """

  name: str
  offset_us: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
  """A measured run; times per step are means over steps and devices.

  Attributes:
    module: name of the module that ran.
    platform: `GPU` or `CPU`.
    num_steps: complete steps in the trace, over all devices.
    step_us: median step time.
    kernel_us: time per step in which kernels ran.
    exposed_us: time in which a collective ran and no kernel did.
    gap_us: time in which neither ran.
    slowdown_us: time by which collectives slowed kernels, as far as their lone
      times are known.
    collectives: the collectives, the most exposed first.
    slowdowns: kernels of equal work beside a collective, the largest losses
      first.
    devices: GPUs by process and number, or CPU devices by number.
    processes: the processes, in the order of their files.
    notes: notes on what the trace lacks.
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


def profile(profile: profile_lib.Profile) -> Profile:
  """The results of a measured run."""
  trace = profile.trace
  return validation.convert(
    Profile,
    overlaps_lib.of_profile(profile),
    module=profile.analysis.module.name,
    platform=trace.platform,
    num_steps=len(profile.whole_steps),
    processes=tuple(
      Process(name=process.name, offset_us=offset_us)
      for process, offset_us in zip(
        trace.processes, profile.offsets_us, strict=True
      )
    ),
    notes=tuple(notes_lib.profile_notes(profile)),
  )
