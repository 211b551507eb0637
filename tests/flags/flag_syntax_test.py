# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""An XLA_FLAGS is read as XLA reads it, and a plan's flags go into it."""

from __future__ import annotations

import functools
import os

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

import jaxlib_options
from jaxlib_options import GATHER
from jaxlib_options import LEVEL
from jaxlib_options import NEW
from jaxlib_options import OLD
from lagom_xla.flags import check
from lagom_xla.flags import debug_options
from lagom_xla.flags import probe
from lagom_xla.flags import syntax


@pytest.mark.parametrize(
  ("text", "words"),
  [
    ("--xla_dump_to=a", "a"),
    ("  --xla_dump_to=a\n", "a"),
    ("--xla_dump_to='a b'", "a b"),
    ('--xla_dump_to="a \\"b\\" \\\\c"', 'a "b" \\c'),
    ("--xla_dump_to='a\\'", "a\\"),
    ('--xla_dump_to="a b', "a b"),
    ("--xla_dump_to=a'b", "a'b"),
    ("--xla_dump_to=", ""),
    ("--xla_dump_to=a b --xla_dump_to=c", "a"),
    ("--xla_dump_to=a=b", "a=b"),
  ],
)
def test_flags_are_parsed_as_xla_parses_them(text, words):
  flags, _ = syntax.parse(text)
  assert flags[-1].value == words
  assert jaxlib_options.values(text)["xla_dump_to"] == words


@given(st.lists(st.text("ab '\"\\=-\n", max_size=6), max_size=3))
def test_a_printed_flag_parses_to_itself(values):
  flags = [syntax.Flag(name="a_b", value=value) for value in values]
  assert syntax.parse(" ".join(map(str, flags))) == (tuple(flags), "")


@settings(max_examples=25)
@given(st.text("ab '\"\\=-\t", max_size=8))
def test_xla_reads_back_any_value(value):
  text = str(syntax.Flag(name="xla_dump_to", value=value))
  assert jaxlib_options.values(text)["xla_dump_to"] == value


def test_jaxlib_is_asked_again_where_the_child_was_killed():
  probe.ask([""])
  child = probe._child(os.getpid())
  child.kill()
  child.wait()
  (answer,) = probe.ask([f"--{LEVEL}=3 --{GATHER}=12345"])
  values = debug_options.values(answer.compile_options)
  assert (values[LEVEL], values[GATHER]) == (3, 12345)


def test_what_a_flag_sets_is_read_without_the_others():
  flags, _ = syntax.parse(f"--{LEVEL}=2 --{GATHER}=x --xla_none")
  level, gather, none = check.read_flags(flags)
  assert level.sets == {LEVEL: 2}
  assert (gather.is_fatal, gather.unknown, none.unknown) == (True, False, True)


_merged = functools.partial(check.merge, nccl_env={})


def test_the_plan_wins_and_each_flag_has_its_source():
  merged = _merged(f"--{GATHER}=1 --{LEVEL}=2", {GATHER: 5})
  assert [(e.flag, e.source, e.replaces) for e in merged.entries] == [
    (f"--{LEVEL}=2", "environment", ()),
    (f"--{GATHER}=5", "plan", ((f"--{GATHER}=1", "environment"),)),
  ]
  assert merged.xla_flags == f"--{LEVEL}=2 --{GATHER}=5"


def test_a_plan_replaces_the_other_name_of_its_option():
  merged = _merged(f"--{OLD}=true", {NEW: "off"})
  (entry,) = merged.entries
  assert (entry.source, entry.replaces) == (
    "plan",
    ((f"--{OLD}=true", "environment"),),
  )


def test_what_would_end_a_process_is_left_out_of_a_merge():
  merged = _merged(
    f"--xla_gpu_graph_level=0 --{LEVEL}=2 NCCL_DEBUG=INFO", {"xla_none": 1}
  )
  assert merged.xla_flags == f"--{LEVEL}=2"
  graph, rest, plan = merged.messages
  assert graph.endswith("Write --xla_gpu_enable_command_buffer= instead.")
  assert "NCCL_DEBUG=INFO" in rest
  assert "xla_none" in plan


@settings(max_examples=10)
@given(st.lists(jaxlib_options.SOME_FLAGS, max_size=4), st.integers(0, 3))
def test_merged_flags_set_what_both_would_one_after_the_other(flags, level):
  text = " ".join(flags)
  merged = _merged(text, {LEVEL: level})
  assert jaxlib_options.sets(merged.xla_flags) == jaxlib_options.sets(
    f"{text} --{LEVEL}={level}"
  )
