# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""An XLA_FLAGS is read as XLA reads it."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

import flag_effects
from jaxlib_options import GATHER
from jaxlib_options import LEVEL
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
def test_flags_are_parsed_as_xla_parses_them(text: str, words: str):
  flags, _ = syntax.parse(text)
  assert flags[-1].value == words
  assert flag_effects.values(text)["xla_dump_to"] == words


@given(st.lists(st.text("ab '\"\\=-\n", max_size=6), max_size=3))
def test_a_printed_flag_parses_to_itself(values: list[str]):
  flags = [syntax.Flag(name="a_b", value=value) for value in values]
  assert syntax.parse(" ".join(map(str, flags))) == (tuple(flags), "")


@settings(max_examples=25)
@given(st.text("ab '\"\\=-\t", max_size=8))
def test_xla_reads_back_any_value(value: str):
  text = str(syntax.Flag(name="xla_dump_to", value=value))
  assert flag_effects.values(text)["xla_dump_to"] == value


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
  assert (gather.invalid, none.unknown) == (True, True)
