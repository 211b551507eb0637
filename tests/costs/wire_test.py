# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Collectives alone on their links: channels, chunks, steps."""

from __future__ import annotations

import dataclasses

from hypothesis import assume
from hypothesis import given
from hypothesis import strategies as st
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import wire

_MIB = 2**20
_KINDS = (
  "all-gather",
  "all-reduce",
  "reduce-scatter",
  "all-to-all",
  "collective-permute",
)
H100 = cluster_lib.parse("1x8xh100")
EIGHT = nccl.Communicator(num_ranks=8, num_nodes=1)

clusters = st.sampled_from(
  [
    cluster_lib.parse(name)
    for name in ("1x8xh100", "4x8xh100", "1x8xa100", "18x4xgb200", "lagom_b")
  ]
)


@st.composite
def calls(draw: st.DrawFn):
  """A cluster, a communicator, a kind, bytes, and a setting NCCL can run."""
  cluster = draw(clusters)
  kind = draw(st.sampled_from(_KINDS))
  devices = range(cluster.num_devices)
  communicator = nccl.Communicator(
    num_ranks=cluster.num_devices,
    num_nodes=cluster.num_nccl_nodes_of(devices),
  )
  pairs = nccl.candidates(cluster, communicator, kind)
  algorithm, protocol = draw(st.sampled_from(pairs))
  setting = nccl.Setting(
    algorithm=algorithm,
    protocol=protocol,
    num_channels=draw(st.integers(1, 32)),
    chunk_bytes=draw(st.integers(1, 64)) * nccl.chunk_grain_bytes(protocol),
  )
  num_bytes = draw(st.integers(1, 2**33))
  return cluster, communicator, kind, num_bytes, setting


def _with(call, **fields):
  *rest, setting = call
  return *rest, dataclasses.replace(setting, **fields)


def _default_us(kind: str, num_bytes: int, cluster=H100, communicator=EIGHT):
  setting = nccl.default_setting(cluster, communicator, kind, num_bytes)
  return wire.time_us(cluster, communicator, kind, num_bytes, setting)


@given(calls())
def test_every_setting_of_nccl_takes_some_time(call):
  assert 0 < wire.time_us(*call) < float("inf")


@given(calls())
def test_twice_the_channels_are_never_slower(call):
  setting = call[-1]
  more = _with(call, num_channels=2 * setting.num_channels)
  assert wire.time_us(*more) <= wire.time_us(*call) * (1 + 1e-9)


@given(calls(), st.integers(1, 2**30))
def test_more_bytes_are_never_faster_on_a_ring(call, more_bytes):
  cluster, communicator, kind, num_bytes, setting = call
  assume(setting.algorithm == "ring")
  larger = (cluster, communicator, kind, num_bytes + more_bytes, setting)
  assert wire.time_us(*larger) >= wire.time_us(*call) * (1 - 1e-9)


def test_a_single_rank_and_no_bytes_take_no_time():
  one = nccl.Communicator(num_ranks=1, num_nodes=1)
  setting = nccl.default_setting(H100, EIGHT, "all-gather", _MIB)
  assert wire.time_us(H100, one, "all-gather", _MIB, setting) == 0
  assert wire.time_us(H100, EIGHT, "all-gather", 0, setting) == 0


def _ring_us(
  num_channels: int, chunk_bytes: int, num_bytes: int = 1024 * _MIB
) -> float:
  setting = nccl.Setting(
    algorithm="ring",
    protocol="simple",
    num_channels=num_channels,
    chunk_bytes=chunk_bytes,
  )
  return wire.time_us(H100, EIGHT, "all-gather", num_bytes, setting)


def test_channels_help_until_the_links_are_full():
  times_us = [_ring_us(n, 2**21) for n in range(1, 25)]
  assert times_us[0] / times_us[3] == pytest.approx(4, rel=0.05)
  assert times_us[9] > 1.1 * times_us[11]
  # 29 GB/s of a channel fill 371 GB/s of links from 13 channels on.
  assert times_us[13] == pytest.approx(times_us[23], rel=0.02)


def test_small_chunks_spend_their_time_on_handshakes():
  assert _ring_us(16, 2**14) > 1.5 * _ring_us(16, 2**19)


def test_large_chunks_take_longer_to_fill_the_pipeline():
  # Parts of 2 MiB pass in slices of half a chunk; 1 MiB takes a channel 36 us,
  # 512 KiB half of that.
  num_bytes = 16 * 8 * 2 * _MIB
  added_us = _ring_us(16, 2**21, num_bytes) - _ring_us(16, 2**20, num_bytes)
  assert 10 < added_us < 20


def test_nvls_passes_larger_chunks_faster():
  setting = nccl.default_setting(H100, EIGHT, "all-reduce", 2**30)
  assert setting.algorithm == "nvls"
  small, large = (
    wire.time_us(
      H100,
      EIGHT,
      "all-reduce",
      2**30,
      dataclasses.replace(setting, chunk_bytes=kib * 1024),
    )
    for kib in (16, 128)
  )
  assert small > 1.3 * large


def test_large_collectives_reach_what_nccl_tests_report():
  # Bus bandwidths at 1 GB on eight H100s (Meta's autoparallel: all-gather 345
  # GB/s; NVLS all-reduce 460 to 480 in vendors' tables).
  gather_us = _default_us("all-gather", 2**30)
  assert 2**30 * 7 / 8 / gather_us / 1e3 == pytest.approx(345, rel=0.05)
  reduce_us = _default_us("all-reduce", 2**30)
  assert 2**30 * 7 / 4 / reduce_us / 1e3 == pytest.approx(470, rel=0.05)


def test_a_permute_around_a_ring_shares_channels_between_both_directions():
  # nccl-tests' sendrecv of 64 MiB on eight H100s over four channels: 820 us.
  time_us = _default_us("collective-permute", 64 * _MIB)
  assert time_us == pytest.approx(820, rel=0.05)


def test_rings_take_the_same_hops_over_direct_links_as_through_a_switch():
  switched = cluster_lib.parse("1x4xh100")
  node = switched.node
  assert node.nvlink is not None
  direct = dataclasses.replace(
    switched,
    node=dataclasses.replace(
      node, nvlink=dataclasses.replace(node.nvlink, topology="cube_mesh")
    ),
  )
  four = nccl.Communicator(num_ranks=4, num_nodes=1)
  for kind in ("all-gather", "reduce-scatter", "all-reduce"):
    one, other = (
      _default_us(kind, 4096, cluster, four) for cluster in (switched, direct)
    )
    assert one == pytest.approx(other)


def test_small_all_reduces_on_four_a100s_take_what_a_traced_step_shows():
  # 11 to 13 us at their fastest (pax_a100), which NCCL says of them, too.
  four = nccl.Communicator(num_ranks=4, num_nodes=1)
  time_us = _default_us("all-reduce", 1024, cluster_lib.parse("1x4xa100"), four)
  assert 10 < time_us < 18


def test_rings_across_nodes_are_bound_by_the_adapters():
  # Eight of 50 GB/s in each node.
  cluster = cluster_lib.parse("2x8xh100")
  communicator = nccl.Communicator(num_ranks=16, num_nodes=2)
  num_bytes = 2**32
  time_us = _default_us("all-gather", num_bytes, cluster, communicator)
  gbps = num_bytes * 15 / 16 / time_us / 1e3
  assert 300 < gbps < 400


def test_an_a40s_channels_saturate_pcie():
  # Lagom, figure 3: 32 MB all-reduce over 8 A40s on PCIe takes nearly the same
  # with 16 and 32 channels.
  cluster = cluster_lib.parse("lagom_b")
  few, many = (
    wire.time_us(
      cluster,
      EIGHT,
      "all-reduce",
      32 * _MIB,
      nccl.Setting(
        algorithm="ring",
        protocol="simple",
        num_channels=num_channels,
        chunk_bytes=16384,
      ),
    )
    for num_channels in (16, 32)
  )
  assert few == pytest.approx(many, rel=0.05)


def test_a_gpu_uses_the_parameters_of_the_measured_system_most_like_it():
  systems = {
    name: wire.system_of(cluster_lib.parse(f"1x4x{name}"))
    for name in ("a100", "h100", "h200", "b200", "gb200")
  }
  assert systems == {
    "a100": "a100",
    "h100": "h100",
    "h200": "h100",
    "b200": "b200",
    "gb200": "gb200",
  }
