# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Predicted schedules: the steps that they are of, and what tests ask of them.

The steps are the small ones of conftest.py, scheduled with XLA's estimates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
import jax
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import compiler
from lagom_xla.passes import collectives
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.xla_schedule import reschedule

MIB = 2**20
NODE = cluster_lib.parse("1x8xh100")
KINDS = ("all-gather", "reduce-scatter", "all-reduce")

Scheduled = Callable[..., hlo.Module]
FsdpStep = Callable[..., jax.stages.Lowered]


@pytest.fixture(scope="module")
def loop(scheduled: Scheduled, fsdp_step: FsdpStep) -> hlo.Module:
  """FSDP over layers in a loop of four, forward and backward."""
  return scheduled(fsdp_step(), **{compiler.ESTIMATES: True})


@pytest.fixture(scope="module")
def unrolled(scheduled: Scheduled, fsdp_step: FsdpStep) -> hlo.Module:
  """The same without loops: nine all-gathers in one, and as many back."""
  return scheduled(fsdp_step(unroll=True), **{compiler.ESTIMATES: True})


def predict(module: hlo.Module, **changes: Any) -> hlo.Module:
  return reschedule.reschedule(module, reschedule.Changes(**changes), NODE)


def assert_legal(module: hlo.Module) -> None:
  for computation_id in module.executions:
    computation = module.computations[computation_id]
    order = [i.id for i in computation.instructions]
    assert dependencies.of(computation).first_violation(order) is None
  for collective in collectives.find(module):
    home = next(
      c for c in module.computations.values() if collective.start_id in c.by_id
    )
    assert collective.done_id is not None
    position = home.position
    assert position[collective.start_id] < position[collective.done_id]


CHOICES = st.fixed_dictionaries(
  {},
  optional={
    "thresholds_bytes": st.dictionaries(
      st.sampled_from(KINDS), st.integers(0, 16 * MIB), max_size=3
    ),
    "overlap_limit": st.integers(1, 5),
    "pipelined": st.sets(st.sampled_from(KINDS)),
    "double_buffered": st.booleans(),
  },
)
