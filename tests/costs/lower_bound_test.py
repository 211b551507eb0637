# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The bound on the step time, by hand and against replays."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from benchmarks.searchers import space
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import lower_bound
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo

H100S = cluster_lib.parse("1x8xh100")

_DOT = hlo_text.DOT
_START = "(f32[512,4096], f32[4096,4096]) all-gather-start"
# A product of the gathered array; another product may overlap the gather.
_CHAIN = hlo_text.text(f"""
  p = f32[512,4096] parameter(0)
  q = f32[4096,4096] parameter(1)
  gather = {_START}(p), {hlo_text.GATHER}
  beside = f32[4096,4096] dot(q, q), {_DOT}
  done = f32[4096,4096] all-gather-done(gather)
  ROOT after = f32[4096,4096] dot(done, q), {_DOT}
""")
_MACHINES = [
  cluster_lib.parse(name)
  for name in ("1x8xh100", "1x8xa100", "1x8xb200", "2x4xh100", "lagom_a")
]
_FABRICS = cluster_lib.schema()["$defs"]["Node"]["properties"]["fabric"]["enum"]


def _step(module: str | hlo.Module, cluster: str = "1x8xh100"):
  if isinstance(module, str):
    module = hlo.load(module)
  return step_lib.of_module(module, cluster_lib.parse(cluster))


def _kernels_us(step: step_lib.Step) -> list[float]:
  return [
    step.kernel_cost(kernel).time_us
    for kernel in step.analysis.kernels.values()
  ]


@pytest.mark.parametrize("is_long", [False, True])
def test_the_bound_runs_dependent_kernels_after_their_collective(is_long):
  # The dependency chain can exceed either stream where little overlaps the
  # gather.
  beside = f"dot(q, q), {_DOT}"
  step = _step(_CHAIN.replace(beside, "add(q, q)") if is_long else _CHAIN)
  (key,) = step.keys
  links_us = lower_bound.links_us(key, H100S)
  beside_us, after_us = _kernels_us(step)
  assert not is_long or links_us > beside_us
  expected_us = max(beside_us + after_us, links_us + after_us)
  assert lower_bound.us(step) == pytest.approx(expected_us)


_LOOP = "while(p), condition=go_on, body=product, " + hlo_text.trips(4)
_CONDITIONAL = "conditional(which, p, p), branch_computations={none, product}"


@pytest.mark.parametrize(("times", "called"), [(4, _LOOP), (0, _CONDITIONAL)])
def test_the_bound_counts_all_loop_trips_and_the_fastest_branch(times, called):
  text = hlo_text.text(
    f"""
      p = f32[4096,4096] parameter(0)
      which = s32[] parameter(1)
      ROOT out = f32[4096,4096] {called}
    """,
    computations=f"""
      none {{
        ROOT a = f32[4096,4096] parameter(0) }}
      product {{
        a = f32[4096,4096] parameter(0)
        ROOT product.1 = f32[4096,4096] dot(a, a), {_DOT} }}
      go_on {{
        a = f32[4096,4096] parameter(0)
        ROOT yes = pred[] constant(true) }}
    """,
  )
  step = _step(text)
  (product_us,) = _kernels_us(step)
  assert lower_bound.us(step) == pytest.approx(times * product_us)


def test_links_move_a_rings_bytes_at_their_data_sheet_rate():
  # 18 links of 25 GB/s; a gather's other 7 of 8 parts come over them.
  key = collective_lib.TuningKey("all-gather", 8, 1, 2**30)
  expected_us = 2**30 * 7 / 8 / (18 * 25.0 * 1e3)
  assert lower_bound.links_us(key, H100S) == pytest.approx(
    expected_us, rel=0.05
  )


@settings(max_examples=200)
@given(
  st.sampled_from(_MACHINES),
  st.sampled_from(_FABRICS),
  st.sampled_from(
    ["all-gather", "all-reduce", "reduce-scatter", *nccl.SEND_RECV]
  ),
  st.integers(1, 2**31),
  st.data(),
)
def test_no_setting_moves_bytes_faster_than_the_links(
  cluster, fabric, kind, num_bytes, data
):
  node = dataclasses.replace(cluster.node, fabric=fabric)
  cluster = dataclasses.replace(cluster, node=node)
  key = collective_lib.TuningKey(kind, 8, cluster.num_nodes % 3, num_bytes)
  setting = data.draw(_settings(key, cluster))
  predicted_us = collective_lib.predict(key, setting, cluster).time_us
  assert predicted_us >= lower_bound.links_us(key, cluster) * (1 - 1e-9)


@settings(max_examples=20)
@given(st.data())
def test_no_setting_makes_a_step_shorter_than_its_bound(
  train_step_module, data
):
  step = _step(
    train_step_module,
    data.draw(st.sampled_from(["1x8xh100", "1x8xa100", "2x4xh100"])),
  )
  configuration = {
    key: data.draw(_settings(key, step.cluster)) for key in step.keys
  }
  bound_us = lower_bound.us(step)
  assert 0 < bound_us <= step.timeline(configuration).step_time_us * (1 + 1e-9)


def _settings(
  key: collective_lib.TuningKey, cluster: cluster_lib.Cluster
) -> st.SearchStrategy[nccl.Setting]:
  """Any setting that a search may try."""
  return st.sampled_from(space.subspaces(key, cluster)).flatmap(
    lambda subspace: st.builds(
      subspace.setting,
      st.integers(0, len(subspace.num_channels) - 1),
      st.integers(0, len(subspace.chunk_bytes) - 1),
    )
  )
