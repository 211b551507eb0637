# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measured costs: which predictions a profile replaces, and with what."""

from __future__ import annotations

import dataclasses
import pathlib

import hypothesis
from hypothesis import strategies
import pytest

from benchmarks.steps import corrected
from benchmarks.steps import traced_step
from lagom_xla import profiling
from lagom_xla.costs import contention
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import measured as measured_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.passes import hlo
from lagom_xla.passes import matrix_products
from lagom_xla.profiling import costing as costing_lib
from lagom_xla.profiling import profile as profile_lib
import simulated_run
from simulated_run import H100S
from simulated_run import lone_us
from simulated_run import process_of
from simulated_run import profile_of
import xspace_text

_ROOT = pathlib.Path(__file__).resolve().parents[2]
# For steps of the simulated run, whose slowdowns follow no model.
_STEP_TOLERANCE = 0.2


@pytest.fixture(scope="module")
def profile(fsdp_scan: hlo.Module) -> profile_lib.Profile:
  return profile_of(fsdp_scan)


@pytest.fixture(scope="module")
def costed(profile: profile_lib.Profile) -> costing_lib.Costing:
  return costing_lib.of_profile(profile, H100S)


@pytest.fixture
def step(fsdp_scan: hlo.Module, costed: costing_lib.Costing) -> step_lib.Step:
  with measured_lib.pricing(costed.measured):
    return step_lib.of_module(fsdp_scan, H100S)


def test_kernels_measured_without_overlap_cost_their_measured_time(
  step, profile
):
  assert profile.lone_us
  for name in profile.lone_us:
    cost = step.kernel_cost(profile.kernels[name])
    assert cost.run_us == pytest.approx(lone_us(name), abs=1e-3)
    assert cost.gap_us == pytest.approx(simulated_run.GAP_US, abs=1e-3)
    assert cost.source == "measured"
    assert cost.memory_us <= cost.run_us


def test_a_measured_collective_keeps_its_predicted_memory_traffic(
  step, fsdp_scan
):
  predicted = step_lib.of_module(fsdp_scan, H100S)
  for key in step.keys:
    now = step.predict(key, step.default[key])
    model = predicted.predict(key, predicted.default[key])
    assert now.time_us * now.memory_gbps == pytest.approx(
      model.time_us * model.memory_gbps
    )


def test_a_replay_at_measured_costs_is_close_to_the_run(
  step, profile, fsdp_scan
):
  predicted = step_lib.of_module(fsdp_scan, H100S)
  # A replay does not model late ranks.
  ran_us = profile.step_time_us - 400.0
  replayed_us = step.timeline(step.default).step_time_us
  assert replayed_us == pytest.approx(ran_us, rel=_STEP_TOLERANCE)
  model_us = predicted.timeline(predicted.default).step_time_us
  assert model_us != pytest.approx(ran_us, rel=_STEP_TOLERANCE)


def test_kernels_of_another_compile_are_priced_by_equal_work(
  fsdp_unrolled, costed
):
  with measured_lib.pricing(costed.measured):
    unrolled = step_lib.of_module(fsdp_unrolled, H100S)
  _, by_work, _ = costing_lib.num_priced(costed, unrolled)
  assert by_work
  kernels = unrolled.analysis.kernels.values()
  sources = [unrolled.kernel_cost(kernel).source for kernel in kernels]
  assert sources.count("measured") >= by_work


def test_kernels_missing_from_the_trace_are_scaled_by_their_category(fsdp_scan):
  whole = profile_of(fsdp_scan)
  by_work: dict[measured_lib.Work, list[str]] = {}
  for name, kernel in whole.kernels.items():
    by_work.setdefault(measured_lib.work_of(kernel), []).append(name)
  # A kernel with work that no other kernel does.
  name = next(
    n[0] for n in by_work.values() if len(n) == 1 and n[0] in whole.lone_us
  )
  kernel = whole.kernels[name]
  costed = costing_lib.of_profile(profile_of(fsdp_scan, without=name), H100S)
  assert name in costed.not_run
  model = step_lib.of_module(fsdp_scan, H100S).kernel_cost(kernel)
  with measured_lib.pricing(costed.measured):
    priced = step_lib.of_module(fsdp_scan, H100S).kernel_cost(kernel)
  factor = costed.measured.categories[kernel.category]
  assert priced.run_us == pytest.approx(factor * model.run_us)
  assert priced.source == model.source


def test_a_categorys_ratio_sums_the_times_of_its_measured_kernels(
  costed, profile
):
  products = {
    name for name in profile.lone_us if profile.kernels[name].category == "gemm"
  }
  (ratio,) = (r for r in costed.ratios if r.kind == "gemm")
  assert ratio.n == len(products)
  assert ratio.measured_us == pytest.approx(
    sum(lone_us(n) * profile.kernels[n].executions for n in products), rel=1e-3
  )
  assert ratio.low <= ratio.median <= ratio.high


def test_measured_slowdowns_correct_the_models_slowdowns(step, profile):
  assert step.measured is not None
  named = {measured_lib.work_of(k): k for k in profile.kernels.values()}
  beside = step.costs(step.default).beside
  lost_us, model_us, ran_us = 0.0, 0.0, 0.0
  for (work, key), factor in step.measured.losses.items():
    kernel = step.kernel_cost(named[work])
    collective = step.predict(key, step.default[key])
    model = contention.beside(kernel, collective, step.cluster.gpu)
    found = beside(kernel, collective)
    assert found.collective_factor == model.collective_factor
    lost = found.kernel_us - kernel.time_us
    assert lost == pytest.approx(factor * (model.kernel_us - kernel.time_us))
    lost_us += lost
    model_us += model.kernel_us - kernel.time_us
    ran_us += (simulated_run.SLOWDOWN - 1) * kernel.run_us
  # The run slows kernels half as much again, whatever the model thinks.
  assert abs(lost_us - ran_us) < abs(model_us - ran_us)


def test_a_slowdown_factor_from_few_runs_stays_near_one():
  def factor(number: int) -> float:
    met = costing_lib.Met(time_us=13.0, lone_us=10.0, predicted_us=11.0)
    return costing_lib.slowdown_factor([met] * number)

  assert 1 < factor(1) < factor(10) < factor(1000) < 3
  assert factor(1000) == pytest.approx(3, rel=0.01)


@pytest.mark.parametrize("name", ["maxtext_h100", "pax_a100"])
def test_measured_slowdowns_carry_over_to_other_ranks_not_other_kernels(name):
  data = _ROOT.parent / "shared/data" / name
  if not data.exists():
    pytest.skip(f"shared/data/{name} is not there: too large to ship")
  halves = {"another rank": [], "other kernels": []}
  for row in corrected.rows(traced_step.TracedStep(data)):
    if row["held_out"] in halves:
      gain = row["pairs_corrected"] / row["pairs_model"]
      halves[row["held_out"]].append(gain)
  assert max(halves["another rank"]) < 0.8
  assert max(halves["other kernels"]) > 1


def test_a_products_measured_time_applies_only_to_equal_arithmetic(
  profile, costed
):
  product = next(k for k in profile.kernels.values() if k.matrix_shape)
  f32, s32 = map(matrix_products.Arithmetic, ("f32", "s32"))
  exact = dataclasses.replace(f32, is_exact=True)
  of = {
    number: dataclasses.replace(product, name="unlike", arithmetic=number)
    for number in (exact, f32, s32)
  }
  work_us = {**costed.measured.work_us, measured_lib.work_of(of[exact]): 1e3}
  measured = dataclasses.replace(costed.measured, work_us=work_us)
  for number, kernel in of.items():
    predicted = kernel_lib.predict(kernel, H100S.gpu)
    is_known = measured.kernel(kernel, predicted).run_us == 1e3
    assert is_known == (number is exact)


def _noisy(module: hlo.Module) -> profile_lib.Profile:
  """A run whose kernels take up to 1 % longer from step to step."""
  process = process_of(module)
  begins_us = [k.begin_us for k in process.devices[0]]
  first_us, last_us = min(begins_us), max(begins_us)

  def longer(k: xspace_text.Kernel) -> xspace_text.Kernel:
    share = 0.01 * (k.begin_us - first_us) / last_us
    return dataclasses.replace(k, time_us=k.time_us * (1 + share))

  ranks = [[longer(k) for k in rank] for rank in process.devices]
  noisy = dataclasses.replace(process, devices=ranks)
  return profiling.read({"host": xspace_text.serialized(noisy)})


def test_measured_costs_have_narrower_ranges_than_predicted_costs(fsdp_scan):
  costed = costing_lib.of_profile(_noisy(fsdp_scan), H100S)
  with measured_lib.pricing(costed.measured):
    step = step_lib.of_module(fsdp_scan, H100S)
  predicted = step_lib.of_module(fsdp_scan, H100S)

  def width(priced: step_lib.Step, part: str) -> float:
    """The spread of a part's scenarios, relative to the step."""
    found = uncertainty.times(priced, priced.default)
    times_us = [us for s, us in found.by_scenario.items() if s.part == part] + [
      found.mean_us
    ]
    return (max(times_us) - min(times_us)) / found.mean_us

  for part in ("products", "other_kernels", "within_nodes"):
    assert width(step, part) < width(predicted, part)
  # The run itself differed by 1 % from its start to its end.
  assert 0 < width(step, "measured_kernels") < 0.02


def test_a_profile_of_one_step_leaves_the_uncertainty_unchanged(fsdp_scan):
  process = process_of(fsdp_scan)
  first = [rank[: len(rank) // 3] for rank in process.devices[:1]]
  one = dataclasses.replace(process, devices=first)
  found = profiling.read({"host": xspace_text.serialized(one)})
  costed = costing_lib.of_profile(found, H100S)
  assert costed.measured.kernel_factors is None
  assert uncertainty.scenarios(H100S, costed.measured) == (
    uncertainty.scenarios(H100S)
  )


def test_a_profile_with_missing_ranks_does_not_narrow_collectives(fsdp_scan):
  process = process_of(fsdp_scan)
  some = dataclasses.replace(process, devices=process.devices[:3])
  found = profiling.read({"host": xspace_text.serialized(some)})
  measured = costing_lib.of_profile(found, H100S).measured
  assert measured.keys
  assert not any(map(measured.knows_collective, measured.keys))


@hypothesis.given(
  strategies.lists(strategies.floats(0.5, 2.0), min_size=2, max_size=20)
)
def test_a_range_contains_the_median_and_widens_with_the_spread(ratios):
  found = costing_lib.range_of(ratios)
  assert found is not None
  high, low = found
  assert low <= 1 <= high
  wider = costing_lib.range_of([ratio**2 for ratio in ratios])
  assert wider is not None
  assert wider[0] >= high - 1e-9
  assert wider[1] <= low + 1e-9
