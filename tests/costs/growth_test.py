# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Times of lone collectives grow with their bytes, on every known cluster.

As bytes grow, NCCL changes algorithm, protocol, channels or chunks, without
knowing the fabric. Times may jump there, as on GPUs, but not where NCCL keeps
its choice.
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
import itertools

import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.cluster import read
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import lower_bound
from lagom_xla.costs import nccl
import nccl_tests_log

_KINDS = (
  "all-reduce",
  "all-gather",
  "reduce-scatter",
  "collective-broadcast",
  *nccl.SEND_RECV,
)
_NAMES = (
  *(
    f"{nodes}x{name}"
    for nodes in (1, 2, 4, 16)
    for name in read.machine_names()
  ),
  *(
    f"{nodes}x8x{name}" for nodes in (1, 2, 4, 16) for name in read.gpu_names()
  ),
  *read.cluster_names(),
)
# 64 KiB to 8 GiB, each about the square root of 2 times the one before.
_SIZES = tuple(int(2 ** (half / 2)) // 512 * 512 for half in range(32, 67))


@dataclasses.dataclass(frozen=True)
class _Point:
  """A collective under NCCL's choice, and the link time of its bytes alone."""

  key: collective_lib.TuningKey
  setting: collective_lib.Setting
  time_us: float
  links_us: float


def _point(cluster: cluster_lib.Cluster, kind: str, num_bytes: int) -> _Point:
  key = nccl_tests_log.tuning_key(cluster, kind, num_bytes)
  setting = collective_lib.default_setting(key, cluster)
  return _Point(
    key=key,
    setting=setting,
    time_us=collective_lib.predict(key, setting, cluster).time_us,
    links_us=lower_bound.links_us(key, cluster),
  )


def _curves(name: str) -> Iterator[list[_Point]]:
  """A cluster's points by kind, in order of size."""
  cluster = cluster_lib.parse(name)
  for kind in _KINDS:
    yield [_point(cluster, kind, num_bytes) for num_bytes in _SIZES]


@pytest.mark.parametrize("name", _NAMES)
def test_times_grow_with_bytes_where_nccl_keeps_its_choice(name):
  curves = list(_curves(name))
  for point in itertools.chain.from_iterable(curves):
    assert point.time_us >= point.links_us * (1 - 1e-9), point.key
  for less, more in itertools.chain(*map(itertools.pairwise, curves)):
    if less.setting != more.setting:
      continue
    # Trees and NVLS fill with a chunk or two that are not full yet: 2 %.
    growth = more.key.num_bytes / less.key.num_bytes
    most_us = 1.02 * growth * less.time_us
    assert less.time_us <= more.time_us <= most_us, more.key
    # Messages hide at most half of a ring's bytes, or on a Grace Hopper, with
    # eight channels per thread (wire/network.py), more. So where bytes take
    # most of the time, additional bytes take at least the other part of their
    # link time.
    if less.links_us > less.time_us / 2:
      added_us = more.time_us - less.time_us
      least = 0.12 if "gh200" in name else 0.5
      assert added_us > least * (more.links_us - less.links_us), more.key
