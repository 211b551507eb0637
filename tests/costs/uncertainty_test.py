# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Predictions have ranges, and choices hold even if the model is wrong."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import math

import hypothesis
from hypothesis import given
from hypothesis import strategies as st
import pytest

import all_reduces_by_nccl
from benchmarks.searchers import balance
from benchmarks.searchers import lockstep
import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import scenario as scenario_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.passes import hlo
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.nccl import settings
from lagom_xla.search.xla import joint
from lagom_xla.search.xla import knobs

H100 = cluster_lib.parse("1x8xh100")
_KIB, _MIB = 2**10, 2**20
# A kernel of this size has blocks for 128 of an H100's 132 SMs, all at once.
_ONE_WAVE = 1024
_GATHER = knobs.OPTIONS["all-gather"]


def _gathers(
  sizes_bytes: Sequence[Sequence[int]],
  kernels: Sequence[Sequence[str]],
  *,
  size: int,
) -> hlo.Module:
  """All-gathers of this many arrays, and the kernels beside each."""
  lines = [f"p = f32[{size},{size}] parameter(0)"]
  for i, (sizes, beside) in enumerate(zip(sizes_bytes, kernels, strict=True)):
    start, done = hlo_text.all_gather(f"all-gather.{i}", *sizes)
    lines += [start, *beside, done]
  return hlo_text.load(
    "\n".join([*lines, f"ROOT end = (f32[{size},{size}]) tuple(p)"])
  )


def _step(*sizes_bytes: int, kernel_us: float = 600.0) -> step_lib.Step:
  """All-gathers, each beside one kernel."""
  kernels = [
    [hlo_text.kernel(f"kernel.{i}", kernel_us, size=_ONE_WAVE)]
    for i in range(len(sizes_bytes))
  ]
  module = _gathers([[n] for n in sizes_bytes], kernels, size=_ONE_WAVE)
  return step_lib.of_module(module, H100)


# Steps under a scenario.


def test_a_scenario_scales_only_the_part_that_it_names():
  step = _step(64 * _MIB)
  before = step.timeline(step.default)
  slow = step.under(scenario_lib.Scenario(other_kernels=2.0))
  assert slow.timeline(step.default).kernel_us == 2 * before.kernel_us
  assert slow.timeline(step.default).collective_us == before.collective_us
  products = step.under(scenario_lib.Scenario(products=2.0))
  assert products.timeline(step.default) == before
  wire = step.under(scenario_lib.Scenario(within_nodes=2.0))
  assert wire.timeline(step.default).collective_us == pytest.approx(
    2 * before.collective_us
  )
  network = step.under(scenario_lib.Scenario(between_nodes=2.0))
  assert network.timeline(step.default) == before


def test_a_contention_scenario_scales_the_time_lost_to_overlap():
  step = _step(16 * _MIB)  # Hidden: the kernel overlaps it from the start.
  none_us, lost_us, more_us = (
    step.under(scenario_lib.Scenario(contention=factor))
    .timeline(step.default)
    .total_slowdown_us
    for factor in (0.0, 1.0, 2.0)
  )
  assert 0 == none_us < lost_us < more_us


def test_a_scenario_can_make_only_small_collectives_free():
  step = _step(64 * _KIB - 8, 64 * _KIB)
  small, large = sorted(step.keys, key=lambda key: key.num_bytes)
  free = step.under(scenario_lib.Scenario(small_collectives=0.0))
  assert free.predict(small, step.default[small]).time_us == 0
  large_cost = step.predict(large, step.default[large])
  assert free.predict(large, step.default[large]) == large_cost


@given(
  factor=st.floats(1.0, 4.0),
  num_channels=st.integers(1, 24),
  mib=st.integers(1, 256),
)
def test_slow_channels_matter_only_for_settings_with_few_channels(
  factor, num_channels, mib
):
  step = _step(mib * _MIB)
  (key,) = step.keys
  default = step.default[key]
  setting = dataclasses.replace(
    default, num_channels=min(num_channels, default.num_channels)
  )
  slow = step.under(scenario_lib.Scenario(few_channels=factor))
  alone_us = step.predict(key, setting).time_us
  slow_us = slow.predict(key, setting).time_us
  assert slow_us >= alone_us
  if setting.num_channels == 1:
    assert slow_us == pytest.approx(factor * alone_us)
  if setting == default:
    assert slow_us == alone_us


def test_settings_that_nccl_would_not_choose_are_more_uncertain():
  step = _step(64 * _MIB)
  (key,) = step.keys
  default = step.default[key]
  other = dataclasses.replace(default, chunk_bytes=2 * default.chunk_bytes)
  fewer = dataclasses.replace(default, num_channels=1)
  slow = step.under(scenario_lib.Scenario(long_settings=1.5))
  short = step.under(scenario_lib.Scenario(short_settings=1.5))
  for setting, factor in ((default, 1.0), (fewer, 1.0), (other, 1.5)):
    alone_us = step.predict(key, setting).time_us
    assert slow.predict(key, setting).time_us == pytest.approx(
      factor * alone_us
    )
    assert short.predict(key, setting).time_us == alone_us


def test_gains_of_smaller_chunks_are_uncertain():
  step = _step(4 * _MIB)
  (key,) = step.keys
  default = step.default[key]
  small = dataclasses.replace(default, chunk_bytes=default.chunk_bytes // 64)
  own, found = (
    step.under(scenario_lib.Scenario(short_settings=1.5)).predict(key, setting)
    for setting in (default, small)
  )
  assert found.time_us >= 1.5 * own.time_us
  moved = own.memory_gbps * own.time_us
  assert found.memory_gbps * found.time_us >= moved


# Ranges.


def test_worst_cases_of_all_parts_add_in_quadrature():
  found = uncertainty.combined(
    10.0,
    {
      scenario_lib.Scenario(part="contention", contention=2.0): 7.0,
      scenario_lib.Scenario(part="contention", contention=0.5): 12.0,
      scenario_lib.Scenario(part="products", products=0.9): 6.0,
    },
  )
  assert found.mean == 10
  assert found.low == 10 - math.hypot(3, 4)
  assert found.high == 12


def test_errors_common_to_two_plans_cancel():
  step = _step(64 * _MIB, 16 * _MIB)
  times = uncertainty.times(step, step.default)
  known = uncertainty.step_time(times)
  assert known.low < known.mean < known.high
  gain = uncertainty.gain(times, times)
  assert (gain.mean, gain.low, gain.high) == (0, 0, 0)


def test_a_steps_range_is_at_least_as_wide_as_the_replay_error():
  known = uncertainty.step_time(uncertainty.Times(mean_us=10.0, by_scenario={}))
  steps = uncertainty.spreads()["steps"]
  assert known.low == pytest.approx(10 * math.exp(steps.low))
  assert known.high == pytest.approx(10 * math.exp(steps.high))


def test_a_fabric_with_few_measurements_has_the_pooled_uncertainty():
  pooled = uncertainty.spreads()["between_nodes"]
  for name, spread in uncertainty.spreads().items():
    part, _, fabric = name.partition(".")
    if part == "between_nodes" and fabric and "calibrated" not in fabric:
      raw = {"num_nodes": 2, "gpu": "h100", "node": {"fabric": fabric}}
      over = cluster_lib.from_dict(raw, where="a test")
      found = uncertainty.of_collectives(over, is_between_nodes=True)
      is_known = spread.n >= uncertainty.LEAST_FIGURES
      assert found == (
        spread if is_known or spread.p90 >= pooled.p90 else pooled
      )


@pytest.mark.parametrize("is_between_nodes", [False, True])
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_calibration_never_widens_a_clusters_range(
  monkeypatch, is_between_nodes, factor
):
  known = uncertainty.spreads()
  part = "between_nodes" if is_between_nodes else "within_nodes"
  plain = cluster_lib.parse("2x8xh100")
  before = uncertainty.of_collectives(plain, is_between_nodes=is_between_nodes)
  calibrated = dataclasses.replace(before, p90=factor * before.p90, n=50)
  name = f"{part}.calibrated"
  fabric = f"{name}.{plain.node.fabric}"
  monkeypatch.setattr(
    uncertainty,
    "spreads",
    lambda: {**known, name: calibrated, fabric: calibrated},
  )
  factors = cluster_lib.Factors(rate_factor=0.8)
  reach = "between_nodes" if is_between_nodes else "within_node"
  cluster = dataclasses.replace(
    plain, calibration=cluster_lib.Calibration(**{reach: factors})
  )
  # Only one of the two reaches is calibrated.
  for is_asked in (False, True):
    spread, other = (
      uncertainty.of_collectives(c, is_between_nodes=is_asked)
      for c in (cluster, plain)
    )
    is_narrower = is_asked == is_between_nodes and factor < 1
    assert spread == (calibrated if is_narrower else other)


def test_a_single_node_has_no_network_scenarios():
  parts = {scenario.part for scenario in uncertainty.scenarios(H100)}
  assert "between_nodes" not in parts
  two = uncertainty.scenarios(cluster_lib.parse("2x8xh100"))
  assert parts | {"between_nodes"} == {scenario.part for scenario in two}


# Which settings are chosen.


def _gains_us(
  step: step_lib.Step, configuration: step_lib.Configuration
) -> list[float]:
  """Step times over those of NCCL's own choices, in each scenario."""
  before = uncertainty.times(step, step.default)
  after = uncertainty.times(step, configuration)
  return [
    before_us - after.by_scenario[scenario]
    for scenario, before_us in before.by_scenario.items()
  ]


@hypothesis.settings(max_examples=40)  # Each is two whole searches.
@given(
  mib=st.lists(st.integers(1, 256), min_size=1, max_size=3),
  kernel_us=st.floats(50.0, 3000.0),
)
def test_no_chosen_setting_costs_time_in_any_scenario(mib, kernel_us):
  step = _step(*(size * _MIB for size in mib), kernel_us=kernel_us)
  found = settings.search(step).configuration
  assert min(_gains_us(step, found)) >= 0
  assert min(_gains_us(step, channel_cap.surest(step).configuration)) >= 0


def test_a_setting_that_gains_only_on_average_is_not_chosen():
  # The gather is barely hidden: as predicted, the fewest channels that hide it
  # are best.
  step = _step(128 * _MIB, kernel_us=900.0)
  by_mean = lockstep.run_step(balance.Balance(), step).configuration
  assert step.timeline(by_mean).step_time_us < (
    step.timeline(step.default).step_time_us
  )
  assert min(_gains_us(step, by_mean)) < 0
  assert min(_gains_us(step, settings.search(step).configuration)) >= 0


def test_settings_that_gain_in_every_scenario_are_chosen():
  # The gather is far from exposed, so a setting that spares the kernel cannot
  # lose.
  step = _step(16 * _MIB, kernel_us=3000.0)
  found = settings.search(step)
  assert found.tuned_times.mean_us < found.default_times.mean_us
  gain = uncertainty.gain(found.default_times, found.tuned_times)
  assert 0 < gain.low <= gain.mean


def test_collectives_below_64_kib_keep_nccls_choice(scheduled, fsdp_step):
  module = scheduled(fsdp_step(), **all_reduces_by_nccl.options())
  step = step_lib.of_module(module, H100)
  small = [key for key in step.keys if scenario_lib.is_small(key)]
  by_mean = lockstep.run_step(balance.Balance(), step).configuration
  assert any(by_mean[key] != step.default[key] for key in small)
  found = settings.search(step).configuration
  assert all(found[key] == step.default[key] for key in small)


@pytest.mark.parametrize(
  ("num_bytes", "is_kept"), [(_KIB, False), (_MIB, True)]
)
def test_no_option_is_chosen_for_its_gain_on_small_collectives(
  num_bytes, is_kept
):
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    kernels = [hlo_text.kernel(f"kernel.{i}", 3.0) for i in range(8)]
    if _GATHER in config.options:
      return _gathers([[num_bytes] * 8], [kernels], size=256)
    return _gathers([[num_bytes]] * 8, [[k] for k in kernels], size=256)

  target = fake_target.FakeTarget(
    name="step", cluster=H100, scheduled=schedule, is_scheduled=False
  )
  found = joint.search(target, arms=())
  before_us = found.default.tuned.step_time_us
  faster = [c for c in found.scheduled if c.tuned.step_time_us < before_us]
  assert faster
  assert (found.best in faster) == is_kept


def test_nodes_with_only_pcie_are_as_uncertain_as_networks():
  near, far = (
    uncertainty.of_collectives(cluster_lib.parse(name), is_between_nodes=False)
    for name in ("1x8xh100", "1x8xl40s")
  )
  assert far == uncertainty.spreads()["between_nodes"]
  assert near.p90 < far.p90


def test_a_scenario_says_how_far_off_the_prediction_would_be():
  for factor, words in (
    (0.86, "14 % less time than predicted"),
    (1.004, "0.4 % more time than predicted"),
    (3.0, "3.0 times as long as predicted"),
  ):
    assert in_words.off_by(factor) == words
  names = [s.name for s in uncertainty.scenarios(cluster_lib.parse("2x8xh100"))]
  of_nodes = [n for n in names if n.startswith("collectives between nodes ")]
  assert [" less " in n for n in of_nodes] in ([True, False], [False, True])
  assert len(set(names)) == len(names)
