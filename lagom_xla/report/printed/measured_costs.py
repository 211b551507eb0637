# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measured costs in JSON: what a profile said of a step, and what it lacked.

The `profile` of what `inspect` and `tune` print with --profile.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses

from lagom_xla.costs import measured as measured_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.profiling import costing as costing_lib


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredCosts:
  """The costs of a profile that a step is priced by.

  Factors are what a step of the run takes over what it costs here, 9 times in
  10, the high end first; None where the run does not tell.

  Attributes:
    ratios: how far off the model was, by kind.
    num_kernels_by_name: kernels that cost what they took alone in the profile.
    num_kernels_by_work: kernels that cost what others of equal work took.
    num_kernels_scaled: kernels that cost what is predicted, times the median of
      their kind.
    num_pairs: pairs of a kernel's work and a collective, whose loss was
      measured.
    measured_shares: by kind of kernel and of collective: of its time in the
      step, without contention, what was measured.
    kernel_factors: of lone kernels, the high end and the low end; None where
      the run does not tell.
    collective_factors: the same of collectives.
    step_factors: the same of whole steps, over their replay.
    gap_us: between one kernel and the next; None if unknown.
    never_alone: kernels that never ran alone, and none of equal work did.
    not_run: kernels and collectives of the module that the trace lacks.
    has_waits: collectives whose times may have waits for ranks that the trace
      lacks.
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


def of_step(step: step_lib.Step, costed: costing_lib.Costing) -> MeasuredCosts:
  """What a step's costs rest on.

  Args:
    step: priced by `costed`.
    costed: the costs of a profile.
  """
  by_name, by_work, scaled = costing_lib.num_priced(costed, step)
  measured = costed.measured
  return MeasuredCosts(
    ratios=costed.ratios,
    num_kernels_by_name=by_name,
    num_kernels_by_work=by_work,
    num_kernels_scaled=scaled,
    num_pairs=len(measured.losses),
    measured_shares=step_lib.measured_shares(step),
    kernel_factors=measured.kernel_factors,
    collective_factors=measured.collective_factors,
    step_factors=measured.step_factors,
    gap_us=measured.gap_us,
    never_alone=costed.never_alone,
    not_run=costed.not_run,
    has_waits=costed.has_waits,
  )
