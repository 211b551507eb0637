# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A signal ends a training as under jit, whatever the loop is at."""

from __future__ import annotations

from collections.abc import Iterator
import json
import pathlib
import signal

import pytest

from lagom_xla.live import plan_cache
import signalled

_STATES = ("baseline", "profile", "search", "candidate", "measure", "watch")
# Nothing here acts on SIGTERM: what it could leave behind is a search.
_MEETINGS = [(it, signal.SIGINT) for it in _STATES]
_MEETINGS.append(("search", signal.SIGTERM))


@pytest.fixture(scope="module")
def programs() -> Iterator[signalled.Programs]:
  with signalled.programs() as programs:
    yield programs


@pytest.fixture(scope="module")
def under_jit(programs, tmp_path_factory) -> signalled.Ended:
  """How a program ends that Ctrl-C meets, and that trains under jit."""
  folder = tmp_path_factory.mktemp("jit")
  return programs.met(signalled.JIT, signal.SIGINT, folder)


@pytest.mark.parametrize(("state", "number"), _MEETINGS)
def test_a_program_ends_as_under_jit(
  state, number, under_jit, programs, tmp_path
):
  ended = programs.met(state, number, tmp_path)
  assert ended.statuses == [-number]
  raised = _raised(under_jit.errors) if number == signal.SIGINT else []
  assert _raised(ended.errors) == raised, ended.errors
  # A search that is not killed goes on to its end, and ends well.
  assert 0 not in ended.orphans
  assert _num_trials(tmp_path) == _num_plans(tmp_path) == (state == "watch")
  if number == signal.SIGINT:
    assert not list((tmp_path / signalled.TEMPORARY).iterdir())


def test_ctrl_c_ends_all_processes_of_a_job(programs, tmp_path):
  ended = programs.met("profile", signal.SIGINT, tmp_path, num_processes=2)
  assert ended.statuses == [-signal.SIGINT] * 2, ended.errors
  for errors in ended.errors:
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
  assert not list((tmp_path / signalled.TEMPORARY).iterdir())


def test_the_next_training_deletes_what_a_signal_had_left(programs, tmp_path):
  temporary = tmp_path / signalled.TEMPORARY
  programs.met("profile", signal.SIGTERM, tmp_path)
  assert list(temporary.iterdir())
  programs.met("watch", signal.SIGINT, tmp_path)
  assert not list(temporary.iterdir())


def _raised(errors: list[str]) -> list[str]:
  """What stderr says but for the lines of a traceback: heads and errors."""
  (one,) = errors
  return [line for line in one.splitlines() if not line.startswith(" ")]


def _num_trials(folder: pathlib.Path) -> int:
  """Trials in the log, all of which can be read."""
  log = folder / signalled.LOG
  lines = log.read_text().splitlines() if log.exists() else []
  return len([json.loads(line) for line in lines])


def _num_plans(folder: pathlib.Path) -> int:
  """Plans that are kept, all of which can be read."""
  plans = folder / signalled.PLANS
  keys = [it.name.removesuffix(".plan.json") for it in plans.glob("*")]
  assert all(plan_cache.PlanCache(plans, key).get() for key in keys)
  return len(keys)
