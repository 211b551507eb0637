# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Collectives alone: NCCL's own times, with channels and chunks added."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.search.nccl import problem

H100 = cluster_lib.parse("1x8xh100")
_MIB = 2**20
_TUNABLE = ("all-gather", "all-reduce", "reduce-scatter")

clusters = st.sampled_from(
  [
    cluster_lib.parse(name)
    for name in ("1x8xh100", "4x8xh100", "1x8xa100", "1x8xb200", "lagom_b")
  ]
)


def _key(
  kind: str, num_bytes: int, cluster: cluster_lib.Cluster = H100
) -> collective_lib.TuningKey:
  devices = range(cluster.num_devices)
  return collective_lib.TuningKey(
    kind=kind,
    num_ranks=cluster.num_devices,
    num_nodes=cluster.num_nccl_nodes_of(devices),
    num_bytes=num_bytes,
  )


@st.composite
def costed(draw: st.DrawFn):
  """A cluster, a key on it, and a setting that the key can have."""
  cluster = draw(clusters)
  num_bytes = draw(st.integers(1, 2**31))
  key = _key(draw(st.sampled_from(_TUNABLE)), num_bytes, cluster)
  subspace = draw(st.sampled_from(problem.subspaces(key, cluster)))
  setting = subspace.setting(
    draw(st.integers(0, len(subspace.num_channels) - 1)),
    draw(st.integers(0, len(subspace.chunk_bytes) - 1)),
  )
  return cluster, key, setting


def test_a_single_rank_costs_nothing():
  key = collective_lib.TuningKey("all-gather", 1, 1, 2**30)
  setting = collective_lib.default_setting(key, H100)
  cost = collective_lib.predict(key, setting, H100)
  assert cost == collective_lib.CollectiveCost(
    time_us=0.0, num_channels=0, memory_gbps=0.0
  )


def test_no_bytes_cost_nothing():
  setting = collective_lib.default_setting(_key("all-gather", _MIB), H100)
  cost = collective_lib.predict(_key("all-gather", 0), setting, H100)
  assert cost.time_us == cost.num_channels == cost.memory_gbps == 0


@given(costed())
def test_one_channel_more_is_never_slower_and_draws_no_less(case):
  cluster, key, setting = case
  more = dataclasses.replace(setting, num_channels=setting.num_channels + 1)
  few = collective_lib.predict(key, setting, cluster)
  many = collective_lib.predict(key, more, cluster)
  assert many.time_us <= few.time_us * (1 + 1e-9)
  assert many.memory_gbps >= few.memory_gbps * (1 - 1e-9)


def test_chunks_beyond_a_channels_share_change_next_to_nothing():
  # 24 channels, 8 ranks: 6 MiB leave a channel 32 KiB of a rank's part.
  key = _key("all-gather", 6 * _MIB)
  setting = nccl.Setting(
    algorithm="ring", protocol="ll128", num_channels=24, chunk_bytes=2**19
  )
  smaller = dataclasses.replace(setting, chunk_bytes=2**18)
  fast = collective_lib.predict(key, setting, H100)
  slow = collective_lib.predict(key, smaller, H100)
  assert fast.time_us == pytest.approx(slow.time_us, rel=1e-2)


_COLLECTIVE = collectives_lib.Collective(
  name="collective",
  kind="all-gather",
  form="async",
  computation="main",
  start_id=1,
  done_id=2,
  num_operands=1,
  operand_bytes=100,
  result_bytes=800,
  array_bytes=(800,),
  element_type="bf16",
  groups=(tuple(range(8)),),
  pairs=(),
  executions=1,
  is_pipelined=False,
)


def _collective(**fields: Any) -> collectives_lib.Collective:
  return dataclasses.replace(_COLLECTIVE, **fields)


def test_a_key_is_what_nccl_can_tell_apart():
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


def test_the_group_over_the_most_nodes_counts():
  three_nodes = cluster_lib.parse("3x8xh100")
  rows = tuple(tuple(range(i, i + 6)) for i in range(0, 24, 6))
  key = collective_lib.tuning_key(_collective(groups=rows), three_nodes)
  assert (key.num_ranks, key.num_nodes) == (6, 2)
  # Of a permute groups are chains, and the longest need not be the slowest.
  chains = _collective(kind="collective-permute", groups=((0, 1, 2), (7, 8)))
  key = collective_lib.tuning_key(chains, three_nodes)
  assert (key.num_ranks, key.num_nodes) == (2, 2)


@pytest.mark.parametrize("kind", [*_TUNABLE, "all-to-all"])
def test_one_rank_more_on_one_of_two_nodes_makes_nothing_quicker(
  kind: str,
) -> None:
  cluster = cluster_lib.parse("3x8xh100")

  def time_us(num_ranks: int) -> float:
    key = collective_lib.TuningKey(kind, num_ranks, 2, 64 * _MIB)
    setting = collective_lib.default_setting(key, cluster)
    return collective_lib.predict(key, setting, cluster).time_us

  for even in range(2, 16, 2):
    assert time_us(even) <= time_us(even + 1) < 1.4 * time_us(even)


def test_a_collective_of_unknown_groups_is_taken_for_a_single_rank():
  key = collective_lib.tuning_key(_collective(groups=()), H100)
  assert (key.num_ranks, key.num_nodes) == (1, 1)


def test_larger_chunks_draw_more_memory_bandwidth():
  # Up to where the chunks of all channels no longer fit L2 together.
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


def test_channels_stop_helping_once_the_links_are_full():
  key = _key("all-gather", 256 * _MIB)
  default = collective_lib.default_setting(key, H100)
  times_us = [
    collective_lib.predict(
      key, dataclasses.replace(default, num_channels=num_channels), H100
    ).time_us
    for num_channels in range(1, 25)
  ]
  assert times_us[0] / times_us[3] == pytest.approx(4, rel=0.1)
  assert times_us[19] < 1.1 * times_us[23]


@pytest.mark.parametrize("kind", ["all-to-all", "collective-permute"])
def test_sends_and_receives_have_nothing_to_tune(kind):
  key = _key(kind, 16 * _MIB)
  (subspace,) = problem.subspaces(key, H100)
  assert subspace.most == collective_lib.default_setting(key, H100)
  assert len(subspace.num_channels) == len(subspace.chunk_bytes) == 1


@given(clusters, st.sampled_from(_TUNABLE))
def test_chunks_are_whole_grains_and_fit_a_channels_buffer(cluster, kind):
  for subspace in problem.subspaces(_key(kind, 64 * _MIB, cluster), cluster):
    grain = nccl.chunk_grain_bytes(subspace.protocol)
    most = nccl.max_chunk_bytes(subspace.algorithm, subspace.protocol)
    assert list(subspace.chunk_bytes) == sorted(set(subspace.chunk_bytes))
    assert all(chunk % grain == 0 for chunk in subspace.chunk_bytes)
    assert 0 < subspace.chunk_bytes[0] <= subspace.chunk_bytes[-1] <= most
    assert subspace.num_channels[0] == 1
