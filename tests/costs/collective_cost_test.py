# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Costs of single collectives: NCCL's own times, with channels and chunks."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import assume
from hypothesis import given
from hypothesis import strategies as st
import pytest

from benchmarks.searchers import space
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import wire
from lagom_xla.passes import collectives as collectives_lib
import nccl_tests_log
import replay_parts

H100 = cluster_lib.parse("1x8xh100")
_MIB = 2**20
_TUNABLE = ("all-gather", "all-reduce", "reduce-scatter")

_KINDS = (*_TUNABLE, "all-to-all", "collective-permute")

clusters = st.sampled_from(
  [
    cluster_lib.parse(name)
    for name in (
      *("1x8xh100", "4x8xh100", "1x8xa100", "1x8xb200", "18x4xgb200"),
      "lagom_b",
    )
  ]
)


def _key(
  kind: str, num_bytes: int, cluster: cluster_lib.Cluster = H100
) -> collective_lib.TuningKey:
  return nccl_tests_log.tuning_key(cluster, kind, num_bytes)


@st.composite
def calls(draw: st.DrawFn):
  """A key, a setting with which NCCL can run it, and a cluster."""
  cluster = draw(clusters)
  key = _key(
    draw(st.sampled_from(_KINDS)), draw(st.integers(1, 2**33)), cluster
  )
  pairs = nccl.candidates(cluster, key.communicator, key.kind)
  algorithm, protocol = draw(st.sampled_from(pairs))
  setting = nccl.Setting(
    algorithm=algorithm,
    protocol=protocol,
    num_channels=draw(st.integers(1, 32)),
    chunk_bytes=draw(st.integers(1, 64)) * nccl.chunk_grain_bytes(protocol),
  )
  return key, setting, cluster


@pytest.mark.parametrize(("num_ranks", "num_bytes"), [(1, 2**30), (8, 0)])
def test_a_collective_of_one_rank_or_no_bytes_costs_nothing(
  num_ranks, num_bytes
):
  key = collective_lib.TuningKey("all-gather", num_ranks, 1, num_bytes)
  setting = collective_lib.default_setting(_key("all-gather", _MIB), H100)
  cost = collective_lib.predict(key, setting, H100)
  assert cost == collective_lib.CollectiveCost(
    time_us=0.0, num_channels=0, memory_gbps=0.0
  )


@given(calls())
def test_extra_channels_in_a_node_cut_neither_speed_nor_bandwidth(call):
  key, setting, cluster = call
  assume(key.num_nodes == 1)
  more = dataclasses.replace(setting, num_channels=setting.num_channels + 1)
  few = collective_lib.predict(key, setting, cluster)
  many = collective_lib.predict(key, more, cluster)
  assert 0 < many.time_us <= few.time_us * (1 + 1e-9) < float("inf")
  if key.kind in _TUNABLE:
    assert many.memory_gbps >= few.memory_gbps * (1 - 1e-9)


@given(calls(), st.integers(1, 2**30))
def test_a_ring_is_never_faster_with_more_bytes(call, more_bytes):
  key, setting, cluster = call
  assume(setting.algorithm == "ring")
  larger = dataclasses.replace(key, num_bytes=key.num_bytes + more_bytes)
  time_us = collective_lib.predict(key, setting, cluster).time_us
  larger_us = collective_lib.predict(larger, setting, cluster).time_us
  assert larger_us >= time_us * (1 - 1e-9)


def test_chunks_larger_than_a_channels_share_barely_change_the_time():
  # With 24 channels and 8 ranks, 6 MiB are 32 KiB per channel and rank.
  key = _key("all-gather", 6 * _MIB)
  setting = nccl.Setting(
    algorithm="ring", protocol="ll128", num_channels=24, chunk_bytes=2**19
  )
  smaller = dataclasses.replace(setting, chunk_bytes=2**18)
  fast = collective_lib.predict(key, setting, H100)
  slow = collective_lib.predict(key, smaller, H100)
  assert fast.time_us == pytest.approx(slow.time_us, rel=1e-2)


_COLLECTIVE = dataclasses.replace(
  replay_parts.collective("c50"), result_bytes=800, groups=(tuple(range(8)),)
)


def _collective(**fields: Any) -> collectives_lib.Collective:
  return dataclasses.replace(_COLLECTIVE, **fields)


def test_a_tuning_key_holds_only_fields_that_nccl_distinguishes():
  two_nodes = cluster_lib.parse("2x8xh100")
  within = _collective(groups=(tuple(range(8)), tuple(range(8, 16))))
  across = _collective(groups=tuple((i, i + 8) for i in range(8)))
  assert collective_lib.tuning_key(within, two_nodes) == (
    collective_lib.TuningKey("all-gather", 8, 1, 800)
  )
  assert collective_lib.tuning_key(across, two_nodes) == (
    collective_lib.TuningKey("all-gather", 2, 2, 800)
  )
  renamed = _collective(name="other", start_id=7, executions=3)
  assert collective_lib.tuning_key(renamed, H100) == (
    collective_lib.tuning_key(_collective(), H100)
  )


def test_a_tuning_key_describes_the_group_that_spans_the_most_nodes():
  three_nodes = cluster_lib.parse("3x8xh100")
  rows = tuple(tuple(range(i, i + 6)) for i in range(0, 24, 6))
  key = collective_lib.tuning_key(_collective(groups=rows), three_nodes)
  assert (key.num_ranks, key.num_nodes) == (6, 2)
  # A permute's groups are chains, and the longest need not be the slowest.
  chains = _collective(kind="collective-permute", groups=((0, 1, 2), (7, 8)))
  key = collective_lib.tuning_key(chains, three_nodes)
  assert (key.num_ranks, key.num_nodes) == (2, 2)
  # A collective of unknown groups counts as a single rank.
  key = collective_lib.tuning_key(_collective(groups=()), H100)
  assert (key.num_ranks, key.num_nodes) == (1, 1)


@pytest.mark.parametrize("kind", [*_TUNABLE, "all-to-all"])
def test_an_extra_rank_on_one_of_two_nodes_never_saves_time(kind):
  cluster = cluster_lib.parse("3x8xh100")

  def time_us(num_ranks: int) -> float:
    key = collective_lib.TuningKey(kind, num_ranks, 2, 64 * _MIB)
    setting = collective_lib.default_setting(key, cluster)
    return collective_lib.predict(key, setting, cluster).time_us

  for even in range(2, 16, 2):
    assert time_us(even) <= time_us(even + 1) < 1.4 * time_us(even)


def test_larger_chunks_draw_more_memory_bandwidth():
  # Until the chunks of all channels exceed L2.
  key = _key("all-gather", 1024 * _MIB)
  default = collective_lib.default_setting(key, H100)
  drawn_gbps = [
    collective_lib.predict(
      key, dataclasses.replace(default, chunk_bytes=chunk_bytes), H100
    ).memory_gbps
    for chunk_bytes in (2**17, 2**18, 2**19, 2**20)
  ]
  assert drawn_gbps == sorted(drawn_gbps)
  assert drawn_gbps[-1] > 1.3 * drawn_gbps[0]


@given(clusters, st.sampled_from(_TUNABLE))
def test_candidate_chunks_are_multiples_of_the_grain_and_fit_the_buffer(
  cluster, kind
):
  for subspace in space.subspaces(_key(kind, 64 * _MIB, cluster), cluster):
    grain = nccl.chunk_grain_bytes(subspace.protocol)
    most = nccl.max_chunk_bytes(subspace.algorithm, subspace.protocol)
    assert list(subspace.chunk_bytes) == sorted(set(subspace.chunk_bytes))
    assert all(chunk % grain == 0 for chunk in subspace.chunk_bytes)
    assert 0 < subspace.chunk_bytes[0] <= subspace.chunk_bytes[-1] <= most
    assert subspace.num_channels[0] == 1


def _ring_us(num_channels: int, chunk_bytes: int) -> float:
  setting = nccl.Setting(
    algorithm="ring",
    protocol="simple",
    num_channels=num_channels,
    chunk_bytes=chunk_bytes,
  )
  key = _key("all-gather", 1024 * _MIB)
  return collective_lib.predict(key, setting, H100).time_us


def test_channels_add_speed_until_the_links_are_saturated():
  times_us = [_ring_us(n, 2**21) for n in range(1, 25)]
  assert times_us[0] / times_us[3] == pytest.approx(4, rel=0.05)
  assert times_us[9] > 1.1 * times_us[11]
  # At 29 GB/s a channel, 13 channels saturate links of 371 GB/s.
  assert times_us[13] == pytest.approx(times_us[23], rel=0.02)


def test_small_chunks_are_slowed_by_handshakes():
  assert _ring_us(16, 2**14) > 1.5 * _ring_us(16, 2**19)


@pytest.mark.parametrize(
  ("kind", "num_bytes", "measured_us"),
  [
    # Bus bandwidths at 1 GB on eight H100s (Meta's autoparallel: all-gather 345
    # GB/s; NVLS all-reduce 460 to 480 in vendors' tables).
    ("all-gather", 2**30, 2**30 * 7 / 8 / 345e3),
    ("all-reduce", 2**30, 2**30 * 7 / 4 / 470e3),
    # nccl-tests' sendrecv on eight H100s: a ring over four channels.
    ("collective-permute", 64 * _MIB, 820),
  ],
)
def test_large_collectives_match_times_reported_by_nccl_tests(
  kind, num_bytes, measured_us
):
  found_us = nccl_tests_log.predicted_us(H100, kind, num_bytes)
  assert found_us == pytest.approx(measured_us, rel=0.05)


def test_small_rings_take_equally_long_over_direct_links_and_a_switch():
  switched = cluster_lib.parse("1x4xh100")
  node = switched.node
  assert node.nvlink is not None
  direct = dataclasses.replace(
    switched,
    node=dataclasses.replace(
      node, nvlink=dataclasses.replace(node.nvlink, topology="cube_mesh")
    ),
  )
  for kind in ("all-gather", "reduce-scatter", "all-reduce"):
    one, other = (
      nccl_tests_log.predicted_us(cluster, kind, 4096)
      for cluster in (switched, direct)
    )
    assert one == pytest.approx(other)


def test_an_h800_node_reaches_its_measured_nvlink_bandwidth():
  # 160 GB/s a direction (github.com/deepseek-ai/DeepSeek-V3/issues/28), and
  # DeepEP's all-to-alls 153 and 158 (github.com/deepseek-ai/DeepEP).
  cluster = cluster_lib.parse("1x8xh800")
  for kind, measured_gbps in (("all-gather", 160), ("all-to-all", 155)):
    key = collective_lib.TuningKey(
      kind=kind, num_bytes=2**30, num_ranks=8, num_nodes=1
    )
    setting = collective_lib.default_setting(key, cluster)
    time_us = collective_lib.predict(key, setting, cluster).time_us
    rate_gbps = key.num_bytes * 7 / 8 / time_us / 1e3
    assert rate_gbps == pytest.approx(measured_gbps, rel=0.05)


def test_a_gpu_uses_parameters_of_the_most_similar_measured_system():
  systems = {
    name: wire.system_of(cluster_lib.parse(f"1x4x{name}"))
    for name in ("a100", "h100", "h200", "b200", "gb200")
  }
  assert systems == {
    **{name: name for name in ("a100", "h100", "b200", "gb200")},
    "h200": "h100",
  }


@pytest.mark.parametrize(
  ("element_type", "reduction", "multicasts"),
  [
    *((name, "add", True) for name in ("bf16", "f32", "s32", "u64", "c64")),
    *((name, "add", False) for name in ("s8", "f8e4m3fn", "u16")),
    *(("bf16", "maximum", True), ("f32", "maximum", False)),
    ("bf16", "multiply", False),
  ],
)
def test_nvls_is_a_candidate_only_for_types_and_reductions_it_supports(
  element_type, reduction, multicasts
):
  body = f"""
  x = {element_type}[64] parameter(0)
  ROOT r = {element_type}[64] all-reduce(x), {hlo_text.ALL}, to_apply=join
  """
  joins = f"""
join {{
  l = {element_type}[] parameter(0)
  r = {element_type}[] parameter(1)
  ROOT j = {element_type}[] {reduction}(l, r)
}}
"""
  module = hlo_text.load(body, computations=joins)
  (found,) = collectives_lib.find(module)
  key = collective_lib.tuning_key(found, H100)
  assert key.multicasts == multicasts
  algorithms = {
    pair[0] for pair in nccl.candidates(H100, key.communicator, key.kind)
  }
  assert ("nvls" in algorithms) == multicasts
