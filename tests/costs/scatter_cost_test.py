# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Scatters: updates of one row try again, as others are in flight."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import fusion
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.passes import memory_access
from lagom_xla.report import notes
import replay_parts

H100 = cluster_lib.parse("1x8xh100").gpu
A100 = cluster_lib.parse("1x8xa100").gpu
PATTERNS = (
  "elementwise",
  "row-reduction",
  "column-reduction",
  "transpose",
  "memcpy",
)


_FUSION = dataclasses.replace(replay_parts.kernel("kernel"), category="fusion")


def _kernel(**fields: Any) -> kernels_lib.Kernel:
  return dataclasses.replace(_FUSION, **fields)


_SCATTER = memory_access.Scatter(
  num_updates=16384,
  window_elements=640,
  num_places=32000,
  element_bits=16,
  may_collide=True,
)


def test_updates_of_one_row_try_as_often_as_others_are_in_flight() -> None:
  # Of 640 threads each, 422 updates fit 132 SMs of 2,048 threads. Two bf16
  # share a word.
  tries = fusion.num_tries(_SCATTER, H100)
  in_flight = 132 * 2048 / 640
  assert tries == pytest.approx(16384 * 640 * (in_flight - 1) * 2)


def test_text_collides_far_less_than_one_id() -> None:
  worst_us = fusion.worst_scatter_us(_SCATTER, H100)
  assert fusion.scatter_us(_SCATTER, H100) == pytest.approx(
    worst_us * fusion.collision(32000)
  )
  cost = kernel_lib.predict(_kernel(scatter=_SCATTER), H100)
  assert cost.run_us < worst_us / 10


def test_the_report_names_a_scatter_that_could_take_much_of_a_step() -> None:
  module = hlo_text.load(
    """
      table = bf16[32000,640] parameter(0)
      ids = s32[16384,1] parameter(1)
      updates = bf16[16384,640] parameter(2)
      ROOT out = bf16[32000,640] scatter(table, ids, updates),
        update_window_dims={1}, inserted_window_dims={0},
        scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add16,
        metadata={op_name="jit(f)/scatter-add[mode=X]" source_file="model.py"
                  source_line=84}
    """,
    computations="""
      add16 {
        a = bf16[] parameter(0)
        b = bf16[] parameter(1)
        ROOT sum = bf16[] add(a, b)
      }
    """,
  )
  step = step_lib.of_module(module, cluster_lib.parse("1x8xh100"))
  (note,) = notes.scatter_notes(step, step_time_us=1e5)
  assert note.startswith("out (model.py:84) adds 16,384")
  assert "46.6 ms if they are all the same" in note
  assert not notes.scatter_notes(step, step_time_us=1e7)


@given(num_ids=st.integers(2, 10**4))
def test_the_collision_is_the_sum_of_zipfs_squared_shares(num_ids: int) -> None:
  weights = 1 / np.arange(1, num_ids + 1)
  shares = weights / weights.sum()
  assert fusion.collision(num_ids) == pytest.approx(
    float(shares @ shares), rel=0.05
  )


@pytest.mark.parametrize(
  "changes", [{"may_collide": False}, {"element_bits": 32}], ids=str
)
def test_what_cannot_collide_needs_no_further_try(
  changes: dict[str, Any],
) -> None:
  scatter = dataclasses.replace(_SCATTER, **changes)
  assert fusion.num_tries(scatter, H100) == 0


@pytest.mark.parametrize("gpu", [H100, A100], ids=["h100", "a100"])
def test_no_share_is_more_than_all(gpu: cluster_lib.Gpu) -> None:
  fitted = fusion.fitted(gpu)
  shares = [p.memory_share for p in fitted.patterns.values()]
  assert set(fitted.patterns) == set(PATTERNS)
  assert all(0 < share <= 1 for share in (*shares, fitted.vector_share))
