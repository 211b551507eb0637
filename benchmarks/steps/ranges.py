# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Predicted ranges of traced steps, without and with the run's profile.

    python -m benchmarks.steps.ranges --data FOLDER

Uses the traced ranks of a step (FOLDER is that of `python -m
benchmarks.accuracy`) as a profile, and replays the step with XLA's and NCCL's
defaults. The range with the profile always contains the measured time, because
it comes from it; the row shows its width. `benchmarks.accuracy` shows how well
lone times predict another rank.
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

# Gap between the steps of a rank, which the trace has one by one.
_APART_US = 1e3


def rows(trace: traced_step.TracedStep) -> Iterator[table_lib.Row]:
  """The median step, and its ranges without and with the profile."""
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
  """The profile as `--profile` reads it, with one event per instruction."""
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
