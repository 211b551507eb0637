# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every command: quiet, as JSON, without color, and on a dumb terminal."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import json
import pathlib

import pytest

from commands import CLUSTER
from commands import HLO
from commands import PLAN_FILES
from commands import Outcome
from commands import check_schema
from commands import run
from commands import write_hlo
from lagom_xla import doctor
from lagom_xla.apply import files as files_lib
from lagom_xla.cli import main
from lagom_xla.passes import hlo
import nccl_tests_log
from sample_plan import PLAN
import simulated_run
import xspace_text

# Each command with each kind of argument, for a folder that has its inputs.
# A report accompanies a command's work; a text is its only purpose.
_REPORTS = (
  ("inspect", "step.hlo", CLUSTER),
  ("tune", "step.hlo", CLUSTER, "--out=again"),
  ("report", "plan"),
  ("verify", "plan", "step.hlo", CLUSTER),
  ("whatif", "step.hlo", "--cluster=1x8xh100,1x8xh200"),
  ("profile", "trace"),
  ("calibrate", "--cluster=2x8xh100", "good.log", "bad.log"),
)
_TEXTS = (
  ("explain", "step.hlo", CLUSTER),
  ("explain", "plan"),
  ("flags", "sample"),
  ("flags", "sample", "--merge"),
  ("flags", "--check="),
  ("knobs",),
  ("plugin",),
  ("plugin", "sample"),
  ("clusters",),
  ("schema", "plan"),
  ("doctor",),
  ("completion", "bash"),
)
_COMMANDS = (*_REPORTS, *_TEXTS)
_AS_JSON = [c for c in _COMMANDS if c[0] not in ("plugin", "completion")]

_ESCAPE = "\x1b"
_name = " ".join


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
  """The inputs of the commands."""
  folder = tmp_path_factory.mktemp("folder")
  write_hlo(folder)
  ran = simulated_run.process_of(hlo.load(HLO))
  xspace_text.write(folder / "trace", ran)
  site = nccl_tests_log.calibrated_by(
    nccl_tests_log.TWO_NODES, latency_factor=2.0
  )
  (folder / "good.log").write_text(nccl_tests_log.log_of(site))
  (folder / "bad.log").write_text("nothing\n")
  files_lib.write(PLAN, folder / "sample")
  with contextlib.chdir(folder):
    assert run("tune", "step.hlo", CLUSTER).status == 0
  return folder


@pytest.fixture(autouse=True)
def here(folder, monkeypatch) -> Iterator[None]:
  """Runs in the folder, with an instant examination of the machine."""
  monkeypatch.chdir(folder)
  monkeypatch.setattr(doctor, "examine", _examined)
  yield


def _examined() -> doctor.Checkup:
  finding = doctor.Finding(name="schedules", status="works", found="in 1 s")
  version = doctor.Version(package="jax", version="1")
  return doctor.Checkup(works=True, versions=(version,), findings=(finding,))


def _run(*arguments: str, on_terminal: bool = False) -> Outcome:
  if arguments[0] == "completion":
    pytest.importorskip("shtab")
  if arguments[0] == "report":
    pytest.importorskip("plotly")
  outcome = run(*arguments, on_terminal=on_terminal)
  assert outcome.status == 0, outcome
  return outcome


def test_every_command_is_covered_by_this_file():
  (commands,) = (
    action
    for action in main.parser()._actions
    if action.dest == "command" and action.choices
  )
  assert {command[0] for command in _COMMANDS} == set(commands.choices or ())


@pytest.mark.parametrize("command", _REPORTS, ids=_name)
def test_quiet_reports_print_only_the_names_of_written_files(command):
  outcome = _run(*command, "--quiet", on_terminal=True)
  lines = outcome.out.splitlines()
  assert all(line.startswith("Wrote ") for line in lines)
  if command[0] == "tune":
    assert lines == [f"Wrote again/{name}" for name in PLAN_FILES]
  assert bool(lines) == (command[0] in ("tune", "report", "calibrate"))
  _assert_only_input_errors(command, outcome)


@pytest.mark.parametrize("command", _TEXTS, ids=_name)
def test_quiet_text_commands_print_the_same_text(command):
  quiet = _run(*command, "--quiet", on_terminal=True)
  assert quiet.out == _run(*command, on_terminal=True).out != ""
  _assert_only_input_errors(command, quiet)


@pytest.mark.parametrize("command", _AS_JSON, ids=_name)
@pytest.mark.parametrize("loudness", ["--quiet", "--verbose"])
def test_json_follows_its_schema_with_nothing_else_on_stdout(command, loudness):
  outcome = _run(*command, "--format=json", loudness, on_terminal=True)
  printed = json.loads(outcome.out)
  assert printed
  if command[0] != "schema":
    check_schema(command[0], printed)
  if loudness == "--quiet":
    _assert_only_input_errors(command, outcome)


def _assert_only_input_errors(
  command: tuple[str, ...], outcome: Outcome
) -> None:
  """The output names only problems of the given file."""
  bad = [line for line in outcome.err.splitlines() if "bad.log" not in line]
  assert (bad, outcome.going_on) == ([], ())
  assert bool(outcome.err) == ("bad.log" in command)


@pytest.mark.parametrize("command", _COMMANDS, ids=_name)
@pytest.mark.parametrize(
  ("on_terminal", "variables"),
  [
    (False, {}),
    (True, {"TERM": "dumb"}),
    (True, {"TERM": "xterm-256color", "NO_COLOR": "1"}),
  ],
)
def test_pipes_dumb_terminals_and_no_color_get_no_escape_codes(
  command, on_terminal, variables, monkeypatch
):
  for name, value in variables.items():
    monkeypatch.setenv(name, value)
  outcome = _run(*command, on_terminal=on_terminal)
  said = "" if "NO_COLOR" in variables else outcome.err  # Bars move a cursor.
  assert outcome.out and _ESCAPE not in outcome.out + said


def test_a_color_terminal_gets_a_colored_table(monkeypatch):
  monkeypatch.setenv("TERM", "xterm-256color")
  monkeypatch.delenv("NO_COLOR", raising=False)
  assert _ESCAPE in _run("clusters", on_terminal=True).out
