# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sets hold what was joined, directly or by way of others, and no more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lagom_xla.passes import dependencies

_NUM = 8
items = st.integers(0, _NUM - 1)


@given(st.lists(st.tuples(items, items)))
def test_what_is_joined_by_way_of_others_is_one_set(pairs):
  sets: dependencies.DisjointSets[int] = dependencies.DisjointSets()
  expected = {item: {item} for item in range(_NUM)}
  for one, other in pairs:
    stands_for_other = sets.find(other)
    sets.join(one, other)
    assert sets.find(one) == stands_for_other
    merged = expected[one] | expected[other]
    expected.update(dict.fromkeys(merged, merged))
  for item in range(_NUM):
    together = {o for o in range(_NUM) if sets.find(o) == sets.find(item)}
    assert together == expected[item]
