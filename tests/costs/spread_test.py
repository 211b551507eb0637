# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""How well the parts of the model are known, as measurements showed it."""

from __future__ import annotations

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import uncertainty


def test_every_part_has_a_spread_around_nothing():
  for spread in uncertainty.spreads().values():
    assert spread.n > 0 and spread.groups
    assert spread.low <= 0 <= spread.high
    assert 0 <= spread.median <= spread.p90


def test_pcie_alone_is_as_unknown_as_all_networks():
  near, far = (
    uncertainty.of_collectives(cluster_lib.parse(name), is_between_nodes=False)
    for name in ("1x8xh100", "1x8xl40s")
  )
  assert far == uncertainty.spreads()["between_nodes"]
  assert near.p90 < far.p90
