# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Thresholds of combining are tried where they could change a step."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses

import gather_steps
from gather_steps import KIB
from gather_steps import MIB
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.passes.combine import table
from lagom_xla.search.xla import knobs


def _collectives(module: hlo.Module) -> tuple[collectives_lib.Collective, ...]:
  return overlap_lib.analyze(module).collectives


def _worth_trying(*gathers: Sequence[int]) -> list[int]:
  found = knobs.thresholds_worth_trying(
    _collectives(gather_steps.module(*gathers)), "all-gather"
  )
  return [threshold // MIB for threshold in found]


def test_a_lone_collective_has_no_thresholds_worth_trying():
  assert _worth_trying([40 * MIB]) == []


def test_small_thresholds_are_tried_where_something_is_combined():
  assert _worth_trying([2 * MIB] * 4) == [0, 8]


def test_a_small_threshold_that_no_two_arrays_fit_under_is_not_tried():
  assert _worth_trying([8 * MIB, 8 * MIB]) == [0]
  assert _worth_trying([8 * MIB, 8 * MIB], [3 * MIB, MIB]) == [0, 8, 128]


def test_a_scatter_counts_what_is_left_of_it():
  module = gather_steps.module(plain_scatters=[8 * MIB])
  (scatter,) = _collectives(module)
  combined = dataclasses.replace(
    scatter,
    num_operands=2,
    array_bytes=(32 * MIB, 32 * MIB),
    result_bytes=8 * MIB,
  )
  found = knobs.thresholds_worth_trying([combined], "reduce-scatter")
  assert [threshold // MIB for threshold in found] == [0, 8]


def test_large_thresholds_are_tried_where_two_fit_under_them():
  assert _worth_trying([40 * MIB], [40 * MIB], [40 * MIB]) == [128]
  assert _worth_trying([70 * MIB], [70 * MIB]) == [512]


def test_thresholds_end_with_one_that_all_fit_under():
  assert _worth_trying(*[[40 * MIB]] * 8) == [128, 512]


def test_what_is_combined_may_be_less_so():
  assert _worth_trying([300 * MIB, 400 * MIB]) == [0, 128, 512]
  assert _worth_trying([300 * MIB] * 5, [300 * MIB]) == [
    0,
    128,
    512,
    1024,
    2048,
  ]


def test_kinds_are_combined_apart():
  module = gather_steps.module([64 * KIB], [64 * KIB])
  assert not list(
    knobs.thresholds_worth_trying(_collectives(module), "reduce-scatter")
  )


def test_sizes_are_those_that_xla_counts():
  module = gather_steps.module([8 * MIB, 8 * MIB], plain_scatters=[8 * MIB])
  gather, scatter = _collectives(module)
  assert table.combined_bytes(gather) == 16 * MIB
  assert table.combined_bytes(scatter) == MIB
