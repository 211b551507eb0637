# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Progress messages appear within seconds, on stderr."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import io
import re
import time
from unittest import mock

import pytest

from commands import CLUSTER
from commands import Terminal
from commands import run
from lagom_xla.cli import naming
from lagom_xla.cli import progress
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import watching
from lagom_xla.passes.program import form as form_lib

_PLAN = config_lib.XlaConfig(
  options={"xla_gpu_a": True, "xla_gpu_b": 8}, combine_groups=(("x", "y"),)
)
_THRESHOLD = "xla_gpu_all_gather_combine_threshold_bytes"
# A slow step that fails, so that nothing is compiled.
_SLOW = """\
import time

def step(devices):
  time.sleep(0.3)
  raise RuntimeError("no data")
"""


@pytest.fixture(autouse=True)
def slow(tmp_path, monkeypatch) -> None:
  monkeypatch.chdir(tmp_path)
  (tmp_path / "slow.py").write_text(_SLOW)


@pytest.fixture
def impatient(monkeypatch) -> None:
  monkeypatch.setattr(progress, "FIRST_S", 0.0)


@pytest.mark.parametrize("command", ["inspect", "explain", "tune", "whatif"])
def test_a_slow_command_reports_its_current_work(command, impatient):
  outcome = run(command, "slow.py:step", CLUSTER)
  assert (outcome.status, outcome.out) == (2, "")
  assert any("lowering slow.py:step" in line for line in outcome.going_on)
  # The error is a separate line after the finished work.
  *done, error = outcome.err.splitlines()
  assert error.startswith("lagom-xla: slow.py:step raised RuntimeError")
  assert all(line.endswith("1x8xh100: refused") for line in done)


def test_a_quiet_command_reports_no_progress(impatient):
  assert run("tune", "slow.py:step", CLUSTER, "--quiet").going_on == ()


def test_intervals_between_progress_lines_start_short_and_grow(monkeypatch):
  assert progress.FIRST_S < 2  # Longer silence worries users.
  monkeypatch.setattr(progress, "FIRST_S", 0.03)
  monkeypatch.setattr(progress, "_LOOKS_S", 0.01)
  with _stderr() as err, progress.Bar():
    time.sleep(0.4)  # 0.03, 0.09 and 0.21 s are over, and 0.45 s is not.
  assert 1 <= err.getvalue().count(progress.GOES_ON) <= 3


# Configs that are being compiled.


def _compile(
  config: config_lib.XlaConfig, *, is_to_the_end: bool = False
) -> contextlib.AbstractContextManager[None]:
  return watching.watched(config, "1x8xh100", is_to_the_end=is_to_the_end)


def test_a_config_is_named_while_it_is_compiled_and_costed(impatient):
  with _stderr() as err, progress.Bar() as bar:
    with bar.told_of_compiles(naming.Names()):
      with _compile(config_lib.XlaConfig(options={"xla_gpu_a": True})):
        _await(err, "compiling a=true ...")
      _await(err, "costing a=true ...")
      with _compile(config_lib.DEFAULT, is_to_the_end=True):
        _await(err, "compiling XLA's defaults to the end ...")
  with _compile(config_lib.DEFAULT):
    pass  # No bar is active.


def test_each_distinct_compiled_config_advances_the_bar_once():
  with _stderr(), progress.Bar(lines=False) as bar:
    bar.expect(4)
    with bar.told_of_compiles(naming.Names(), are_steps=True):
      for config in (config_lib.DEFAULT, config_lib.DEFAULT, _PLAN):
        with _compile(config):
          pass
    # Two of four configs are compiled, one of them twice.
    assert bar.num_done == 2


# Remaining time.


@pytest.mark.parametrize(
  ("num_left", "budget_s", "words"),
  [
    (0, None, ""),
    (0.4, None, ""),
    (3, None, ", about 30 s left"),
    (8.6, None, ", about 90 s left"),
    (18, None, ", about 3 min left"),
    (600, None, ", about 100 min left"),
    # A budget limits the estimate.
    (600, 90.0, ", at most 0:01:00 left"),
  ],
)
def test_remaining_time_is_rounded_and_limited_by_the_budget(
  num_left, budget_s, words
):
  clock = mock.Mock(return_value=0.0)
  with mock.patch.object(time, "monotonic", clock), _stderr():
    with progress.Bar(is_quiet=True, time_budget_s=budget_s) as bar:
      for number in range(3):
        assert budget_s or bar.left_in_words == ""
        clock.return_value = 10.0 * (number + 1)
        bar.advance("a step")
      bar.estimate(num_left)
      assert bar.left_in_words == words


def test_remaining_time_includes_full_compiles_after_a_search():
  clock = mock.Mock(return_value=0.0)
  with mock.patch.object(time, "monotonic", clock), _stderr():
    with progress.Bar(is_quiet=True) as bar:
      for ended_s in (40.0, 41.0, 42.0, 43.0):
        clock.return_value = ended_s
        bar.advance("a step")
      assert bar.left_in_words == ""  # Still unknown.
      # The first step was a full compile, the others only schedules.
      bar.estimate(10, num_full=2)
      assert bar.left_in_words == ", about 90 s left"
    with progress.Bar(is_quiet=True, time_budget_s=90.0) as bar:
      clock.return_value += 30.0
      for _ in range(3):
        bar.advance("a step")
      assert bar.left_in_words == ", at most 0:01:00 left"


def test_a_config_is_named_by_its_differences():
  names = naming.Names([(_PLAN, "the plan")])
  assert names(_PLAN) == "the plan"
  assert names(config_lib.DEFAULT) == "XLA's defaults"
  without = config_lib.XlaConfig(
    options={"xla_gpu_a": True}, combine_groups=_PLAN.combine_groups
  )
  assert names(without) == "without b"
  other = config_lib.XlaConfig(options={"xla_gpu_c": "x"})
  assert names(other) == "c=x"
  # Later names in a search are relative to this config.
  assert names(other.with_options({"xla_gpu_d": False})) == "d=false"
  assert names(other) == "c=x"
  form = form_lib.Form(strands="rotated")
  assert names(config_lib.XlaConfig(program=form)) == "strands rotated"


def test_a_config_with_many_differences_names_two_and_counts_others():
  options = {f"xla_gpu_{letter}": 1 for letter in "abcde"}
  config = config_lib.XlaConfig(options=options)
  assert naming.Names()(config) == "d=1, e=1 and 3 more"


# On a terminal.


@contextlib.contextmanager
def _stderr(stream: io.StringIO | None = None) -> Iterator[io.StringIO]:
  err = stream or io.StringIO()
  with contextlib.redirect_stderr(err):
    yield err


def _await(err: io.StringIO, words: str) -> None:
  deadline_s = time.monotonic() + 60
  while words not in err.getvalue():
    assert time.monotonic() < deadline_s, err.getvalue()
    time.sleep(0.01)


def _on_terminal(term: str, step_s: float) -> str:
  """The progress line of a search that compiles its fourth of ten configs."""
  environment = {"TERM": term, "COLUMNS": "80"}
  with mock.patch.dict("os.environ", environment), _stderr(Terminal()) as err:
    with progress.Bar() as bar:
      bar.expect(10)
      for number in range(3):
        time.sleep(step_s)
        bar.advance(f"arm {number}")
      with bar.told_of_compiles(naming.Names()):
        with _compile(_PLAN):
          time.sleep(0.3)
        with _compile(config_lib.XlaConfig(options={_THRESHOLD: 2**27})):
          time.sleep(0.3)
  return err.getvalue()


def test_a_terminal_shows_the_current_compile_and_remaining_time(monkeypatch):
  monkeypatch.setattr(progress, "_LEAST_S", 0.5)
  shown = _on_terminal("xterm-256color", step_s=0.2)
  assert re.search(r"compiling .*our combine groups", shown)
  assert "3/10" in shown
  assert re.search(r"about \d+ s left", shown)
  # The name of an option and its value fit.
  assert "compiling all_gather_combine_threshold_bytes=134 MB " in shown
  # The last line is erased.
  assert shown.rstrip("\r\n").endswith("\x1b[2K")
  plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown)
  assert max(map(len, re.split(r"[\r\n]", plain))) <= 80


def test_a_dumb_terminal_gets_plain_lines():
  shown = _on_terminal("dumb", step_s=0.1)
  assert "\x1b" not in shown
  first, *_ = shown.splitlines()
  assert re.fullmatch(r" +\d+\.\d s  arm 0", first)
