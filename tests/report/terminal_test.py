# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A report begins with its verdict, fits 40 lines, and cuts no name off."""

from __future__ import annotations

import dataclasses
import io
import pathlib
import re

import hypothesis
from hypothesis import strategies as st
import jax
import pytest
import rich.console

from commands import CLUSTER
from commands import HLO
from commands import Outcome
from commands import run
from commands import write_steps
import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.cli import output
from lagom_xla.compile import config as config_lib
from lagom_xla.report import layout
from lagom_xla.report import terminal
from lagom_xla.tuner import tuner
from lagom_xla.tuner import tuning as tuning_lib


@st.composite
def _section(draw: st.DrawFn) -> layout.Section:
  items = draw(st.lists(st.lists(st.just("  item"), min_size=1, max_size=4)))
  return layout.Section(
    head=tuple(draw(st.lists(st.just("Head"), max_size=3))),
    items=tuple(map(tuple, items)),
  )


@hypothesis.given(st.lists(_section(), min_size=1, max_size=6))
def test_all_heads_are_shown_and_what_is_left_out_is_counted(
  sections: list[layout.Section],
) -> None:
  shown = layout.fitted(sections)
  heads = sum(len(section.head) for section in sections)
  assert shown.count("Head") == heads
  least = heads + sum(bool(section.items) for section in sections)
  assert len(shown) <= max(least, layout.NUM_LINES)
  whole = layout.fitted(sections, 10**6)
  assert len(whole) == heads + sum(
    len(item) for section in sections for item in section.items
  )
  if len(whole) <= layout.NUM_LINES:
    assert shown == whole
  else:
    assert any(
      re.fullmatch(r"  and \d+ more, which -v shows", x) for x in shown
    )


@hypothesis.given(st.text(alphabet="ab- ", max_size=400), st.integers(0, 21))
def test_wrapping_loses_no_word_and_keeps_to_80_columns(
  text: str, indent: int
) -> None:
  found = layout.wrapped(text, indent=indent)
  assert all(len(line) <= layout.NUM_COLUMNS for line in found)
  assert "".join("".join(found).split()) == "".join(text.split())


def _fits(outcome: Outcome) -> bool:
  lines = outcome.out.splitlines()
  assert outcome.status == 0
  assert "\x1b" not in outcome.out and "…" not in outcome.out
  assert max(map(len, lines)) <= layout.NUM_COLUMNS
  return len(lines) <= layout.NUM_LINES


def test_an_inspection_says_first_what_collectives_cost_and_from_which_line(
  h100s: list[jax.Device], tmp_path: pathlib.Path
) -> None:
  step = write_steps(tmp_path)
  outcome = run("inspect", step, CLUSTER)
  assert _fits(outcome)
  first, *_ = outcome.out.splitlines()
  assert re.match(
    r"jit_step on 1x8xh100: collectives( and copies)? cost [\d.]+ ms", first
  )
  assert re.search(r"from steps\.py:\d+", " ".join(outcome.out.split()))
  assert "What runs beside each collective" not in outcome.out
  whole = run("inspect", step, CLUSTER, "-v")
  assert max(map(len, whole.out.splitlines())) <= layout.NUM_COLUMNS
  assert whole.out.startswith(first)
  assert "What runs beside each collective" in whole.out
  assert re.search(r"(?m)^  steps\.py:\d+ *$", whole.out)


def test_where_nothing_can_be_gained_the_first_line_says_so(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.chdir(tmp_path)
  pathlib.Path("step.hlo").write_text(HLO)
  outcome = run("tune", "step.hlo", CLUSTER)
  assert _fits(outcome)
  first, *_ = outcome.out.splitlines()
  assert first.startswith(
    "step on 1x8xh100: nothing to set: of 1 configuration"
  )
  assert "env.sh  on every" not in outcome.out


def test_a_quiet_command_says_what_is_wrong_and_prints_json(
  tmp_path: pathlib.Path,
) -> None:
  wrong = run("inspect", "absent.hlo", CLUSTER, "-q")
  assert (wrong.status, wrong.out) == (2, "")
  assert wrong.err.startswith("lagom-xla: Cannot read absent.hlo: ")
  path = tmp_path / "step.hlo"
  path.write_text(HLO)
  loud = run("inspect", str(path), CLUSTER, "--format=json")
  assert run("inspect", str(path), CLUSTER, "--format=json", "-q") == loud


_H100 = cluster_lib.parse("1x8xh100")
_GATHERED_BYTES = 16 * 2**20
_COLLECTIVE = "all-gather-start.of-the-layers-that-have-experts.12"
_OPTIONS = {
  "xla_gpu_experimental_collective_start_as_early_as_possible": True,
  "xla_gpu_experimental_parallel_collective_overlap_limit": 4,
}


@pytest.fixture(scope="module")
def tuning() -> tuning_lib.Tuning:
  """A tuning that tried two options with long names."""
  start, done = hlo_text.all_gather(_COLLECTIVE, _GATHERED_BYTES)
  kernel = hlo_text.kernel("kernel", 1000.0)
  end = "ROOT result = f32[256,256] copy(kernel)"
  first = "p = f32[256,256] parameter(0)"
  module = hlo_text.load("\n".join([first, start, kernel, done, end]))
  target = fake_target.FakeTarget(
    name="step", cluster=_H100, scheduled=lambda _: module
  )
  tuning = tuner.tune(target)
  config = config_lib.XlaConfig(options=_OPTIONS)
  tried = dataclasses.replace(tuning.search.default, config=config)
  search = tuning.search.with_candidate(tried)
  return dataclasses.replace(tuning, search=search)


@pytest.mark.parametrize("width", [80, 110])
def test_no_name_of_an_option_or_a_collective_is_cut_off(
  tuning: tuning_lib.Tuning, width: int
) -> None:
  stream = io.StringIO()
  console = rich.console.Console(file=stream, width=width, markup=False)
  terminal.show_tuning(console, tuning, [], is_verbose=True)
  lines = stream.getvalue().splitlines()
  assert "…" not in stream.getvalue()
  assert max(map(len, lines)) <= width
  # The first column of each table, with folded names put together.
  joined = "".join(line.partition("  ")[0] for line in lines)
  assert _COLLECTIVE in joined
  assert all(name.removeprefix("xla_gpu_") in joined for name in _OPTIONS)


def test_columns_that_are_told_hold_where_the_result_is_no_terminal(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.delenv("COLUMNS", raising=False)
  wide = output.console().width
  monkeypatch.setenv("COLUMNS", "77")
  assert output.console().width == 77 < wide
