# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ranges of traced steps: as predicted, and with the profile of the run.

    python -m benchmarks.steps.ranges --data FOLDER

The traced ranks of a step (FOLDER is that of `python -m benchmarks.accuracy`)
are taken as a profile, and the step is replayed with XLA's and NCCL's defaults.
What it took is in the range that the profile gives because that is made of it;
how wide that is, is what the row shows. How well lone times hold for another
rank is in `benchmarks.accuracy`.
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses

from benchmarks import table as table_lib
from benchmarks.steps import traced_step
from lagom_xla.costs import measured as measured_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.profiling import costing as costing_lib
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.profiling import trace as trace_lib

# Between the steps of a rank, of which the trace has each by itself.
_APART_US = 1e3


def rows(trace: traced_step.TracedStep) -> Iterator[table_lib.Row]:
  """The median step and its range, as predicted and by the profile."""
  profile = _profile(trace)
  costed = costing_lib.of_profile(profile, trace.step.cluster)
  for costs, measured in (("predicted", None), ("profile", costed.measured)):
    with measured_lib.pricing(measured):
      step = step_lib.Step(trace.step.analysis, trace.step.cluster)
    found = uncertainty.step_time(uncertainty.times(step, step.default))
    yield {
      "costs": costs,
      "measured_us": profile.step_time_us,
      "replayed_us": found.mean,
      "low_us": found.low,
      "high_us": found.high,
    }


def _profile(trace: traced_step.TracedStep) -> profile_lib.Profile:
  """As `--profile` reads it: what an instruction launches is one event."""
  traced = trace.profile.trace
  devices = [
    dataclasses.replace(device, launches=tuple(_launches(trace, rank)))
    for rank, device in enumerate(traced.devices)
  ]
  return profile_lib.of_trace(
    dataclasses.replace(traced, devices=tuple(devices)),
    trace.step.analysis.module,
  )


def _launches(
  trace: traced_step.TracedStep, rank: int
) -> Iterator[trace_lib.Launch]:
  """The steps of a rank one after the other."""
  begin_us = 0.0
  for step in trace.ranks[rank]:
    offset_us = begin_us - step[0].begin_us
    for event in step:
      if event.name in trace.kernels or event.name in trace.collectives:
        yield trace_lib.Launch(
          hlo_op=event.name,
          program_id=None,
          begin_us=offset_us + event.begin_us,
          end_us=offset_us + event.end_us,
        )
    begin_us += traced_step.span_us(step) + _APART_US


if __name__ == "__main__":
  traced_step.show(
    "benchmarks.steps.ranges",
    __doc__,
    rows,
    costs="",
    measured_us=".0f",
    replayed_us=".0f",
    low_us=".0f",
    high_us=".0f",
  )
