# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Networks in a what-if: what a rate is, and what a faster one brings."""

from __future__ import annotations

import hypothesis
from hypothesis import strategies as st
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import lower_bound
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.whatif import cases as cases_lib


@pytest.fixture(scope="module")
def between(fsdp_scan: hlo.Module) -> step_lib.Step:
  """The FSDP step on two nodes of four GPUs."""
  return step_lib.of_module(fsdp_scan, cluster_lib.parse("2x4xh100"))


_rates = st.floats(min_value=1.0, max_value=3200.0)


def _with_network(step: step_lib.Step, rate_gbits: float) -> step_lib.Step:
  cluster = cases_lib.with_network(step.cluster, rate_gbits)
  return step_lib.Step(step.analysis, cluster, rescheduled_from=step)


@hypothesis.given(rates=st.tuples(_rates, _rates))
@hypothesis.settings(max_examples=30)
def test_a_faster_network_is_never_slower_under_equal_settings_nor_its_bound(
  between: step_lib.Step, rates: tuple[float, float]
) -> None:
  slow, fast = (_with_network(between, rate) for rate in sorted(rates))
  settings = slow.default
  for key in between.keys:
    slow_us, fast_us = (
      step.predict(key, settings[key]).time_us for step in (slow, fast)
    )
    assert fast_us <= slow_us * (1 + 1e-9), key
  slow_us, fast_us = (
    step.timeline(settings).step_time_us for step in (slow, fast)
  )
  assert fast_us <= slow_us * (1 + 1e-9)
  assert lower_bound.us(fast) <= lower_bound.us(slow)
  for step in (slow, fast):
    assert lower_bound.us(step) <= step.timeline(step.default).step_time_us


@hypothesis.given(
  rate=_rates, name=st.sampled_from(["4x8xh100", "2xp5.48xlarge", "8x4xgb200"])
)
def test_a_network_rate_is_what_a_gpu_has_of_its_nodes_adapters(
  rate: float, name: str
) -> None:
  cluster = cases_lib.with_network(cluster_lib.parse(name), rate)
  assert cases_lib.gbits_per_gpu(cluster) == pytest.approx(rate)
