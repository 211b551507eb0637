# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ranges of measured costs: how sure a run is of what it says."""

from __future__ import annotations

import dataclasses

import hypothesis
from hypothesis import strategies

from lagom_xla import profiling
from lagom_xla.costs import measured as measured_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.passes import hlo
from lagom_xla.profiling import costing as costing_lib
from lagom_xla.profiling import profile as profile_lib
from measured_run import H100S
from measured_run import process_of
import xspace_text


def _noisy(module: hlo.Module) -> profile_lib.Profile:
  """A run whose kernels take up to 1 % longer from step to step."""
  process = process_of(module)
  first = min(k.begin_us for k in process.devices[0])
  last = max(k.begin_us for k in process.devices[0])
  ranks = [
    [
      dataclasses.replace(
        k, time_us=k.time_us * (1 + 0.01 * (k.begin_us - first) / last)
      )
      for k in rank
    ]
    for rank in process.devices
  ]
  noisy = dataclasses.replace(process, devices=ranks)
  return profiling.read({"host": xspace_text.serialized(noisy)})


def test_what_was_measured_is_surer_than_what_is_predicted(
  fsdp_scan: hlo.Module,
):
  costed = costing_lib.of_profile(_noisy(fsdp_scan), H100S)
  with measured_lib.pricing(costed.measured):
    step = step_lib.of_module(fsdp_scan, H100S)
  predicted = step_lib.of_module(fsdp_scan, H100S)

  def width(priced: step_lib.Step, part: str) -> float:
    """How far apart the scenarios of a part are, over the step."""
    found = uncertainty.times(priced, priced.default)
    times_us = [us for s, us in found.by_scenario.items() if s.part == part] + [
      found.mean_us
    ]
    return (max(times_us) - min(times_us)) / found.mean_us

  for part in ("products", "other_kernels", "within_nodes"):
    assert width(step, part) < width(predicted, part)
  # The run itself differed by 1 % from its start to its end.
  assert 0 < width(step, "measured_kernels") < 0.02


def test_a_run_of_one_step_does_not_say_how_sure_it_is(fsdp_scan: hlo.Module):
  process = process_of(fsdp_scan)
  first = [rank[: len(rank) // 3] for rank in process.devices[:1]]
  one = dataclasses.replace(process, devices=first)
  found = profiling.read({"host": xspace_text.serialized(one)})
  costed = costing_lib.of_profile(found, H100S)
  assert costed.measured.kernel_factors is None
  assert uncertainty.scenarios(H100S, costed.measured) == (
    uncertainty.scenarios(H100S)
  )


def test_missing_ranks_leave_collectives_as_unsure_as_they_were(
  fsdp_scan: hlo.Module,
):
  process = process_of(fsdp_scan)
  some = dataclasses.replace(process, devices=process.devices[:3])
  found = profiling.read({"host": xspace_text.serialized(some)})
  measured = costing_lib.of_profile(found, H100S).measured
  assert measured.keys
  assert not any(map(measured.knows_collective, measured.keys))


@hypothesis.given(
  strategies.lists(strategies.floats(0.5, 2.0), min_size=2, max_size=20)
)
def test_ranges_hold_the_median_and_grow_with_what_varies(ratios: list[float]):
  found = costing_lib.range_of(ratios)
  assert found is not None
  high, low = found
  assert low <= 1 <= high
  wider = costing_lib.range_of([ratio**2 for ratio in ratios])
  assert wider is not None
  assert wider[0] >= high - 1e-9
  assert wider[1] <= low + 1e-9
