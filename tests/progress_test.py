# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Progress: what goes on is said, within seconds, on stderr."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import io
import pathlib
import re
import time
from unittest import mock

import pytest

from commands import CLUSTER
from commands import run
from lagom_xla.cli import naming
from lagom_xla.cli import progress
from lagom_xla.cli import silence
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import watching
from lagom_xla.passes.program import form as form_lib

_PLAN = config_lib.XlaConfig(
  options={"xla_gpu_a": True, "xla_gpu_b": 8}, combine_groups=(("x", "y"),)
)
_THRESHOLD = "xla_gpu_all_gather_combine_threshold_bytes"
# It takes its time, and then fails, so that nothing need be compiled.
_SLOW = """\
import time

def step(devices):
  time.sleep(0.5)
  raise RuntimeError("no data")
"""
_COMMANDS = (
  ("inspect", "slow.py:step", CLUSTER),
  ("explain", "slow.py:step", CLUSTER),
  ("tune", "slow.py:step", CLUSTER),
  ("whatif", "slow.py:step", CLUSTER),
)


@pytest.fixture(autouse=True)
def slow(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.chdir(tmp_path)
  (tmp_path / "slow.py").write_text(_SLOW)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(silence, "FIRST_S", 0.0)


@pytest.mark.parametrize("command", _COMMANDS, ids=lambda c: c[0])
def test_a_slow_command_says_what_it_does_before_it_is_done(
  command: tuple[str, ...], impatient: None
) -> None:
  outcome = run(*command)
  assert (outcome.status, outcome.out) == (2, "")
  assert any("lowering slow.py:step" in line for line in outcome.going_on)
  # The error is a line of its own, after what was done.
  *done, error = outcome.err.splitlines()
  assert error.startswith("lagom-xla: slow.py:step raised RuntimeError")
  assert all(line.endswith("1x8xh100: refused") for line in done)


@pytest.mark.parametrize("command", _COMMANDS, ids=lambda c: c[0])
def test_a_quiet_command_says_nothing_of_it(
  command: tuple[str, ...], impatient: None
) -> None:
  assert run(*command, "--quiet").going_on == ()


def test_somebody_who_waits_is_told_something_within_two_seconds() -> None:
  said_s: list[float] = []
  began_s = time.monotonic()
  waiting = silence.Silence(lambda: said_s.append(time.monotonic() - began_s))
  with contextlib.closing(_Ended(waiting)):
    while not said_s and time.monotonic() - began_s < 60:
      time.sleep(0.01)
  assert silence.FIRST_S <= said_s[0]
  assert silence.FIRST_S < 2


class _Ended:
  def __init__(self, waiting: silence.Silence):
    self.close = waiting.end


def test_silences_grow_so_that_a_log_of_hours_stays_short(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.setattr(silence, "FIRST_S", 0.1)
  said: list[None] = []
  waiting = silence.Silence(lambda: said.append(None))
  time.sleep(1.2)  # 0.1, 0.3 and 0.7 s are over, and 1.5 s is not.
  waiting.end()
  assert 1 <= len(said) <= 3


def test_a_command_that_says_something_is_not_called_silent(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.setattr(silence, "FIRST_S", 600.0)
  said: list[None] = []
  waiting = silence.Silence(lambda: said.append(None))
  waiting.heard()
  waiting.end()
  assert said == []


# What is compiled.


def _compile(
  config: config_lib.XlaConfig, *, is_to_the_end: bool = False
) -> contextlib.AbstractContextManager[None]:
  return watching.watched(
    watching.Compile(
      config=config, cluster="1x8xh100", is_to_the_end=is_to_the_end
    )
  )


def test_what_is_compiled_now_is_named_while_it_is(impatient: None) -> None:
  with _said() as err, progress.Bar() as bar:
    with bar.told_of_compiles(naming.of_today()):
      with _compile(config_lib.XlaConfig(options={"xla_gpu_a": True})):
        _await(err, "compiling a=true ...")
      _await(err, "costing a=true ...")
      with _compile(config_lib.DEFAULT, is_to_the_end=True):
        _await(err, "compiling XLA's defaults to the end ...")
  with _compile(config_lib.DEFAULT):
    pass  # Nobody watches any more.


def test_compiles_that_are_expected_tell_how_long_is_left() -> None:
  with _said(), progress.Bar(lines=False) as bar:
    bar.expect(4)
    assert bar.left_s is None
    with bar.told_of_compiles(naming.of_today(), are_steps=True):
      for config in (config_lib.DEFAULT, config_lib.DEFAULT, _PLAN):
        with _compile(config):
          time.sleep(0.01)
    # Two of four configs are compiled, one of them twice.
    assert bar.num_done == 2
    assert bar.left_s is not None and bar.left_s >= 0.03
    assert re.fullmatch(r", at most \d+:\d\d:\d\d left|", bar.left_in_words)


def test_a_config_is_named_by_what_sets_it_apart() -> None:
  names = naming.Names()
  names.add(_PLAN, "the plan")
  names.add(config_lib.DEFAULT, "XLA's defaults")
  assert names.of(_PLAN) == "the plan"
  assert names.of(config_lib.DEFAULT) == "XLA's defaults"
  without = config_lib.XlaConfig(
    options={"xla_gpu_a": True}, combine_groups=_PLAN.combine_groups
  )
  assert names.of(without) == "the plan without b"
  other = config_lib.XlaConfig(options={"xla_gpu_c": "x"})
  assert names.of(other) == "c=x"
  # From there on a search goes by single steps.
  assert names.of(other.with_options({"xla_gpu_d": False})) == "d=false"
  assert names.of(other) == "c=x"
  form = form_lib.Form(strands="rotated")
  assert names.of(config_lib.XlaConfig(program=form)) == "strands rotated"


def test_of_many_differences_the_last_are_named_and_the_rest_counted() -> None:
  options = {f"xla_gpu_{letter}": 1 for letter in "abcde"}
  config = config_lib.XlaConfig(options=options)
  assert naming.Names().of(config) == "d=1, e=1 and 3 more"


# On a terminal.


class _Terminal(io.StringIO):
  def isatty(self) -> bool:
    return True


@contextlib.contextmanager
def _said(stream: io.StringIO | None = None) -> Iterator[io.StringIO]:
  err = stream or io.StringIO()
  with contextlib.redirect_stderr(err):
    yield err


def _await(err: io.StringIO, words: str) -> None:
  deadline_s = time.monotonic() + 60
  while words not in err.getvalue():
    assert time.monotonic() < deadline_s, err.getvalue()
    time.sleep(0.01)


def _on_terminal(term: str) -> str:
  """What is shown of a search that compiles its second of ten configs."""
  environment = {"TERM": term, "COLUMNS": "80"}
  with mock.patch.dict("os.environ", environment), _said(_Terminal()) as err:
    with progress.Bar() as bar:
      bar.expect(10)
      bar.advance("XLA's defaults")
      with bar.told_of_compiles(naming.of_today()):
        with _compile(_PLAN):
          time.sleep(0.3)
        with _compile(config_lib.XlaConfig(options={_THRESHOLD: 2**27})):
          time.sleep(0.3)
  return err.getvalue()


def test_a_terminal_shows_what_is_compiled_and_how_long_is_left() -> None:
  shown = _on_terminal("xterm-256color")
  assert re.search(r"compiling .*our combine groups", shown)
  assert "1/10" in shown
  assert re.search(r"≤ \d+:\d\d:\d\d left", shown)
  # The name of an option and its value fit.
  assert "compiling all_gather_combine_threshold_bytes=134 MB " in shown
  # It leaves nothing behind: the last line is erased.
  assert shown.rstrip("\r\n").endswith("\x1b[2K")
  plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown)
  assert max(map(len, re.split(r"[\r\n]", plain))) <= 80


def test_a_dumb_terminal_gets_lines() -> None:
  shown = _on_terminal("dumb")
  assert "\x1b" not in shown
  first, *_ = shown.splitlines()
  assert re.fullmatch(r" +\d+\.\d s  XLA's defaults(, at most .* left)?", first)
