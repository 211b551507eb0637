# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Values that gain only together are predicted, and compiled, together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.search.xla import joint
from lagom_xla.search.xla import knobs
from lagom_xla.search.xla import predictions
from lagom_xla.xla_schedule import reschedule

H100 = cluster_lib.parse("1x8xh100")
_DOUBLED = "xla_gpu_enable_while_loop_double_buffering"


def _value(name: str, **changes: object) -> knobs.Value:
  return knobs.Value(
    label=name,
    options={name: 1},
    changes=reschedule.Changes(**changes),  # type: ignore[arg-type]
  )


_GATHER = _value("gather", pipelined=frozenset(["all-gather"]))
_REDUCE = _value("reduce", pipelined=frozenset(["all-reduce"]))
_DOUBLE = _value("double", double_buffered=True)
_LIMIT = _value("limit", overlap_limit=4)
_THRESHOLD = _value("threshold", thresholds_bytes={"all-gather": 8})
_VALUES = (_GATHER, _REDUCE, _DOUBLE, _LIMIT, _THRESHOLD)


def test_what_changes_loops_goes_together_in_every_way():
  found = [set(v.options) for v in predictions.pairs_of_loops(_VALUES)]
  assert found == [
    {"gather", "reduce", "double"},
    {"gather", "reduce"},
    {"gather", "double"},
    {"reduce", "double"},
  ]


def test_values_together_change_what_each_of_them_changes():
  assert predictions.together(_VALUES).changes == reschedule.Changes(
    pipelined=frozenset(["all-gather", "all-reduce"]),
    double_buffered=True,
    overlap_limit=4,
    thresholds_bytes={"all-gather": 8},
  )


@given(
  st.lists(st.sampled_from([*_VALUES, *predictions.pairs_of_loops(_VALUES)]))
)
def test_only_values_of_different_options_are_paired_and_few_of_them(ranked):
  found = predictions.pairs_of_best(ranked)
  most = predictions.MOST_PROMISING
  assert len(found) <= most * (most - 1) // 2
  singles = [set(value.options) for value in ranked]
  for pair in found:
    names = set(pair.options)
    assert any(a | b == names and not a & b for a in singles for b in singles)


def test_loops_are_compiled_with_all_that_gains_together(h100s, fsdp_step):
  target = target_lib.of_step(fsdp_step(), H100, name="step")
  found = joint.search(target, arms=())
  together = [
    c
    for c in found.scheduled
    if _DOUBLED in c.config.options
    and sum("pipeline" in name for name in c.config.options) == 2
  ]
  assert together
  first = together[0]
  default_us = found.default.under_nccl_defaults.step_time_us
  # What it is worth beside its own parts.
  parts = [
    target.schedule(config_lib.XlaConfig(options={name: value}))
    for name, value in first.config.options.items()
  ]
  assert first.under_nccl_defaults.step_time_us < default_us
  assert first.under_nccl_defaults.step_time_us < min(
    _us(step_lib.of_module(part, H100)) for part in parts
  )


def _us(step: step_lib.Step) -> float:
  return step.timeline(step.default).step_time_us
