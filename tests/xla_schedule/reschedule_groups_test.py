# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Predicted schedules of collectives split, combined, and put into groups."""

from __future__ import annotations

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import jax
import pytest

from lagom_xla.compile import compiler
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
import predicted_schedules

loop = predicted_schedules.loop
unrolled = predicted_schedules.unrolled

_MIB = predicted_schedules.MIB
_KINDS = predicted_schedules.KINDS
Scheduled = predicted_schedules.Scheduled
_assert_legal = predicted_schedules.assert_legal
_predict = predicted_schedules.predict


def _sizes(module: hlo.Module, kind: str) -> list[int]:
  found = collectives.find(module)
  return sorted(c.result_bytes for c in found if c.kind == kind)


def test_what_is_split_and_merged_again_is_what_it_was(
  unrolled: hlo.Module,
) -> None:
  split = _predict(unrolled, thresholds_bytes=dict.fromkeys(_KINDS, 0))
  merged = _predict(split, thresholds_bytes=dict.fromkeys(_KINDS, 2**40))

  assert all(c.num_operands == 1 for c in collectives.find(split))
  for kind in _KINDS:
    assert sum(_sizes(split, kind)) == sum(_sizes(unrolled, kind))
    assert _sizes(merged, kind) == _sizes(unrolled, kind)


@settings(max_examples=20)
@given(threshold=st.integers(1, 10 * _MIB))
def test_nothing_is_combined_beyond_the_threshold(
  unrolled: hlo.Module, threshold: int
) -> None:
  predicted = _predict(unrolled, thresholds_bytes={"all-gather": threshold})

  for collective in collectives.find(predicted):
    if collective.kind == "all-gather" and collective.num_operands > 1:
      assert collective.result_bytes <= threshold
  # Neither it nor the next one had room for the other.
  sizes = _sizes(predicted, "all-gather")
  assert len([s for s in sizes if 2 * s <= threshold]) <= 1


def test_a_group_is_combined(unrolled: hlo.Module) -> None:
  single = _predict(unrolled, thresholds_bytes={"all-gather": 0})
  gathers = [c for c in collectives.find(single) if c.kind == "all-gather"]
  chosen = gathers[1:4]

  grouped = _predict(single, groups=[[c.name for c in chosen]])
  found = [c for c in collectives.find(grouped) if c.kind == "all-gather"]

  (together,) = (c for c in found if c.num_operands > 1)
  assert together.num_operands == 3
  assert together.result_bytes == sum(c.result_bytes for c in chosen)
  assert len(found) == len(gathers) - 2
  _assert_legal(grouped)


def test_groups_that_cannot_be_are_refused(
  loop: hlo.Module, unrolled: hlo.Module
) -> None:
  found = collectives.find(unrolled)
  gather = next(c.name for c in found if c.kind == "all-gather")
  scatter = next(c.name for c in found if c.kind == "reduce-scatter")
  homes = {c.computation: c.name for c in collectives.find(loop)}

  with pytest.raises(ValueError, match="No collective called nobody"):
    _predict(unrolled, groups=[["nobody"]])
  with pytest.raises(ValueError, match="differ in kind"):
    _predict(unrolled, groups=[[gather, scatter]])
  with pytest.raises(ValueError, match="different computations"):
    _predict(loop, groups=[list(homes.values())])
  with pytest.raises(ValueError, match="in two groups"):
    _predict(unrolled, groups=[[gather], [gather]])


def test_layers_that_need_each_other_are_not_gathered_together(
  scheduled: Scheduled, tp_step: jax.stages.Lowered
) -> None:
  module = scheduled(tp_step, **{compiler.ESTIMATES: True})
  doubled = _predict(module, double_buffered=True)
  combined = _predict(doubled, thresholds_bytes={"all-reduce": 2**40})

  # The second layer's sum takes the first one's: two stay two.
  assert _sizes(combined, "all-reduce") == _sizes(doubled, "all-reduce")
  assert len(_sizes(doubled, "all-reduce")) == 2 * len(
    _sizes(module, "all-reduce")
  )
