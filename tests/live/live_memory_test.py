# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What became of a step is known to the next run that has the same step."""

from __future__ import annotations

import pathlib
import threading
from typing import Any, cast
from unittest import mock

import jax
import pytest

from lagom_xla.live import memory
from lagom_xla.live import phases
from lagom_xla.live import plan_cache
from lagom_xla.live import proposals
from lagom_xla.live import shutdown
from lagom_xla.live import verdict
import live_step

_SLOWER = {"slower": live_step.sleeping(0.012)}
_FASTER = {"faster": live_step.sleeping(0)}


def _run(
  folder: pathlib.Path | bool,
  proposer: live_step.Proposer,
  *,
  until: str = "now: watch",
) -> str:
  """A run of a program that trains; what its step reports in the end."""
  with live_step.proposed_by(proposer):
    step = live_step.tuned_step(cache=folder)
    live_step.train(step, until)
    return step.report()


def _entry(folder: pathlib.Path) -> plan_cache.Entry:
  lowered = jax.jit(live_step.train_step(0.004), donate_argnums=0).lower(
    live_step.state(), live_step.batch(0)
  )
  machine = proposals.machine_of(lowered, None)
  key = plan_cache.key(lowered, machine)
  entry = plan_cache.PlanCache(folder, key).get()
  assert entry is not None
  return entry


def _unasked(stop: threading.Event) -> None:
  raise AssertionError("a search began")


def test_what_was_adopted_comes_first_and_nothing_is_searched(tmp_path):
  # It is kept though the run ends before its search.
  before = live_step.Proposer({**_FASTER, **_SLOWER})
  _run(tmp_path, before, until="now: candidate, after: slower")
  entry = _entry(tmp_path)
  assert entry.name == "faster"
  assert "of the time" in entry.verdict
  again = live_step.Proposer(_FASTER, before=_unasked)
  report = _run(tmp_path, again)
  assert again.compiled == ["faster"]
  assert report.splitlines()[0].endswith(", faster")
  assert f"no search, as that of {entry.date} came to the same" in report


class _SlowAtFirst:
  """What is kept, in a folder that takes long to open for the first time."""

  def __init__(self) -> None:
    self.kept: list[str] = []
    self._is_opening = threading.Event()
    self._has_kept = threading.Event()

  def is_opening(self) -> None:
    """Returns once it is being opened."""
    self._is_opening.wait()

  def open(self) -> Any:
    if not self._is_opening.is_set():
      self._is_opening.set()
      self._has_kept.wait()
    return self

  def put(self, entry: plan_cache.Entry) -> None:
    self.kept.append(entry.name)
    self._has_kept.set()


def test_what_is_kept_late_does_not_replace_what_is_known_since():
  faster = verdict.judge([(1.0, 0.5)] * 6)
  first, second = (
    phases.Trial(
      proposal=proposals.Proposal(name=name, payload=b"{}"),
      number=number,
      rival=0,
      verdict=faster,
      words="",
    )
    for number, name in enumerate(("first", "second"))
  )
  slow = _SlowAtFirst()
  unused: Any = None
  kept = memory.Memory(live_step.Proposer({}), unused, slow.open)
  # Threads of other tests' steps are not waited for.
  with mock.patch.dict(shutdown._running, clear=True):
    kept.keep([first], has_tried_all=False)
    slow.is_opening()
    kept.keep([first, second], has_tried_all=True)
    assert shutdown.join(live_step.HANGS_S)
  assert slow.kept == ["second"]


@pytest.mark.parametrize(
  ("verdict_", "words"),
  [
    (None, "faster cannot be measured now: searching"),
    (
      verdict.judge([(1.0, 2.0), (1.0, 2.0)]),
      "faster is not faster now: searching",
    ),
  ],
)
def test_what_was_known_and_is_not_faster_is_followed_by_a_search(
  verdict_, words, caplog
):
  proposer, unused = live_step.Proposer({}), cast(Any, None)
  known = mock.Mock()
  known.get.return_value = plan_cache.Entry(
    date="today", adopted="{}", name="faster", verdict=""
  )
  remembering = memory.Memory(proposer, unused, lambda: known)
  measured = proposals.Measured(trace_dir=None, step_s=1.0)
  made = remembering.proposals(measured, threading.Event())
  trial = phases.Trial(
    proposal=next(made), number=1, rival=0, verdict=verdict_, words=""
  )
  remembering.note(trial)
  with caplog.at_level("INFO", "absl"):
    assert list(made) == []
  assert proposer.measured == [measured]
  assert words in caplog.text


def test_a_step_that_nothing_made_faster_is_left_alone(tmp_path):
  _run(tmp_path, live_step.Proposer(_SLOWER))
  entry = _entry(tmp_path)
  assert entry.adopted is None
  assert entry.verdict.endswith("of the time, 2 pairs of blocks")
  again = live_step.Proposer(_FASTER, before=_unasked)
  report = _run(tmp_path, again)
  assert again.compiled == []
  assert f"no search, as that of {entry.date} found nothing faster" in report
  assert _entry(tmp_path) == entry


def test_what_is_not_faster_any_more_is_searched_anew(tmp_path):
  _run(tmp_path, live_step.Proposer(_FASTER))
  now = {"faster": live_step.sleeping(0.012), "fast": live_step.sleeping(0)}
  again = live_step.Proposer(now)
  report = _run(tmp_path, again)
  assert again.compiled == ["faster", "faster", "fast"]
  assert "tried: fast: 0." in report
  assert _entry(tmp_path).name == "fast"


@pytest.mark.filterwarnings("ignore:lagom_xla.tune")
def test_what_fails_is_forgotten(tmp_path):
  def proposer(num_calls: int) -> live_step.Proposer:
    def fragile(lowered: jax.stages.Lowered) -> Any:
      return live_step.Fragile(live_step.sleeping(0.0)(lowered), num_calls)

    return live_step.Proposer({"fragile": fragile})

  _run(tmp_path, proposer(10**6))
  assert _entry(tmp_path).name == "fragile"
  _run(tmp_path, proposer(0), until="now: stay")
  assert not list(tmp_path.iterdir())


def test_it_is_kept_in_the_users_cache_unless_that_is_not_wanted(
  tmp_path, monkeypatch
):
  monkeypatch.setenv("LAGOM_XLA_CACHE", str(tmp_path))
  (tmp_path / "file").touch()
  # A folder that cannot be used costs nothing but the memory.
  for folder in (False, tmp_path / "file" / "plans", True):
    assert not list(tmp_path.rglob("*.plan.json"))
    _run(folder, live_step.Proposer({}))
  assert list(tmp_path.rglob("*.plan.json"))
