# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A plan's flags go into an XLA_FLAGS that is there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

import flag_effects
from jaxlib_options import GATHER
from jaxlib_options import LEVEL
from jaxlib_options import NEW
from jaxlib_options import OLD
from lagom_xla.flags import merge


def test_the_plan_wins_and_each_flag_has_its_source():
  merged = merge.merge(f"--{GATHER}=1 --{LEVEL}=2", {GATHER: 5})
  assert [(e.flag, e.source, e.replaces) for e in merged.entries] == [
    (f"--{LEVEL}=2", "environment", ()),
    (f"--{GATHER}=5", "plan", ((f"--{GATHER}=1", "environment"),)),
  ]
  assert merged.xla_flags == f"--{LEVEL}=2 --{GATHER}=5"


def test_a_plan_replaces_the_other_name_of_its_option():
  merged = merge.merge(f"--{OLD}=true", {NEW: "off"})
  (entry,) = merged.entries
  assert (entry.source, entry.replaces) == (
    "plan",
    ((f"--{OLD}=true", "environment"),),
  )


def test_what_would_end_a_process_is_left_out_of_a_merge():
  merged = merge.merge(
    f"--xla_gpu_graph_level=0 --{LEVEL}=2 NCCL_DEBUG=INFO", {"xla_none": 1}
  )
  assert merged.xla_flags == f"--{LEVEL}=2"
  graph, rest, plan = merged.messages
  assert graph.endswith("Write --xla_gpu_enable_command_buffer= instead.")
  assert "NCCL_DEBUG=INFO" in rest
  assert "xla_none" in plan


def test_without_an_environment_a_merge_is_the_plan():
  assert merge.merge("", {GATHER: 5}).xla_flags == f"--{GATHER}=5"
  assert merge.merge("", {}).entries == ()


@settings(max_examples=10)
@given(st.lists(flag_effects.SOME, max_size=4), st.integers(0, 3))
def test_merged_flags_set_what_both_would_one_after_the_other(
  flags: list[str], level: int
):
  text = " ".join(flags)
  merged = merge.merge(text, {LEVEL: level})
  assert flag_effects.sets(merged.xla_flags) == flag_effects.sets(
    f"{text} --{LEVEL}={level}"
  )
