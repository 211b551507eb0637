# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The next run of a step knows the result of tuning, in full or not at all."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import tempfile
import threading
from typing import Any, cast
from unittest import mock

from flax import nnx
import hypothesis
from hypothesis import strategies
import jax
import jax.numpy as jnp
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
  """A run of a training program; returns its step's last report."""
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


def test_an_adopted_plan_is_reused_by_the_next_run_without_a_search(tmp_path):
  # The plan is stored even if the run ends before its search does.
  before = live_step.Proposer({**_FASTER, **_SLOWER})
  _run(tmp_path, before, until="now: compiling: slower")
  entry = _entry(tmp_path)
  assert entry.name == "faster"
  assert "of the time" in entry.verdict
  again = live_step.Proposer(_FASTER, before=_unasked)
  report = _run(tmp_path, again)
  assert again.compiled == ["faster"]
  assert report.splitlines()[0].endswith("with faster")
  assert f"no search: the plan of {entry.date} is still faster" in report


class _SlowAtFirst:
  """A store in a folder that is slow to open for the first time."""

  def __init__(self) -> None:
    self.kept: list[str] = []
    self._is_opening = threading.Event()
    self._has_kept = threading.Event()

  def is_opening(self) -> None:
    """Waits until the store is being opened."""
    self._is_opening.wait()

  def open(self) -> Any:
    if not self._is_opening.is_set():
      self._is_opening.set()
      self._has_kept.wait()
    return self

  def put(self, entry: plan_cache.Entry) -> None:
    self.kept.append(entry.name)
    self._has_kept.set()


def test_a_delayed_write_does_not_replace_a_newer_result():
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
    (None, "faster cannot be measured; searching again"),
    (
      verdict.judge([(1.0, 2.0), (1.0, 2.0)]),
      "faster is no longer faster; searching again",
    ),
  ],
)
def test_a_remembered_plan_that_is_not_faster_triggers_a_search(
  verdict_, words, caplog
):
  proposer, unused = live_step.Proposer({}), cast(Any, None)
  known = mock.Mock()
  known.risk.get.return_value = None
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


def test_a_step_without_faster_variants_is_not_searched_again(tmp_path):
  _run(tmp_path, live_step.Proposer(_SLOWER))
  entry = _entry(tmp_path)
  assert entry.adopted is None
  assert entry.verdict.endswith("of the time, 2 pairs of blocks")
  again = live_step.Proposer(_FASTER, before=_unasked)
  report = _run(tmp_path, again)
  assert again.compiled == []
  assert f"no search: the run of {entry.date} found nothing faster" in report
  assert _entry(tmp_path) == entry


def test_a_search_replaces_a_remembered_plan_that_became_slower(tmp_path):
  _run(tmp_path, live_step.Proposer(_FASTER))
  now = {"faster": live_step.sleeping(0.012), "fast": live_step.sleeping(0)}
  again = live_step.Proposer(now)
  report = _run(tmp_path, again)
  assert again.compiled == ["faster", "fast"]
  assert "tried: fast: 0." in report
  assert _entry(tmp_path).name == "fast"


def test_results_are_kept_in_the_users_cache_unless_disabled(
  tmp_path, monkeypatch
):
  monkeypatch.setenv("LAGOM_XLA_CACHE", str(tmp_path))
  (tmp_path / "file").touch()
  # With an unusable folder, only the result is not remembered.
  for folder in (False, tmp_path / "file" / "plans", True):
    assert not list(tmp_path.rglob("*.plan.json"))
    _run(folder, live_step.Proposer({}))
  assert list(tmp_path.rglob("*.plan.json"))


_KEY = "0" * 64
_MACHINE = "one H200"
_ADOPTED = plan_cache.Entry(
  date="2026-11-23T03:37:41+00:00",
  adopted='{"is_proven": true}',
  name="2 XLA options",
  verdict="0.9 of the time",
)
_REJECTED = dataclasses.replace(_ADOPTED, adopted=None, name="")


@pytest.fixture
def said() -> list[str]:
  return []


@pytest.fixture
def cache(tmp_path, said) -> plan_cache.PlanCache:
  return plan_cache.PlanCache(tmp_path, _KEY, warn=said.append)


def lowered(scale: float = 2.0, size: int = 8, **options: Any) -> Any:
  jitted = jax.jit(lambda x: x * scale, **options)
  return jitted.lower(jnp.zeros(size))


@hypothesis.given(
  strategies.none() | strategies.text(),
  strategies.text(),
  strategies.text(),
)
def test_a_stored_entry_is_found_again_only_under_its_key(
  adopted, name, verdict
):
  entry = dataclasses.replace(
    _ADOPTED, adopted=adopted, name=name, verdict=verdict
  )
  with tempfile.TemporaryDirectory() as folder:
    said: list[str] = []
    path = pathlib.Path(folder) / "plans"
    plan_cache.PlanCache(path, _KEY, warn=said.append).put(entry)
    found, other = (
      plan_cache.PlanCache(path, key, warn=said.append).get()
      for key in (_KEY, "1" * 64)
    )
    assert (found, other, said) == (entry, None, [])


@hypothesis.given(strategies.data())
def test_a_damaged_entry_is_ignored_with_one_message(data):
  with tempfile.TemporaryDirectory() as folder:
    said: list[str] = []
    cache = plan_cache.PlanCache(pathlib.Path(folder), _KEY, warn=said.append)
    cache.put(_REJECTED)
    (path,) = pathlib.Path(folder).iterdir()
    whole = path.read_bytes()
    at = data.draw(strategies.integers(0, len(whole) - 2))
    flipped = bytes([whole[at] ^ data.draw(strategies.integers(1, 255))])
    for damaged in (whole[:at], whole[:at] + flipped + whole[at + 1 :]):
      path.write_bytes(damaged)
      # A flip may turn JSON whitespace into other whitespace.
      assert cache.get() in (None, _REJECTED)
    path.write_bytes(whole[:at])
    assert cache.get() is None
    assert len(said) == 1


@pytest.mark.parametrize(
  "changed",
  [
    lambda raw: [],
    lambda raw: {},
    lambda raw: {**raw, "entry": {**raw["entry"], "name": "other"}},
    lambda raw: {**raw, "checksum": None},
  ],
)
def test_a_modified_entry_is_ignored_with_one_message_until_replaced(
  changed, cache, said, tmp_path
):
  cache.put(_ADOPTED)
  (path,) = tmp_path.iterdir()
  path.write_text(json.dumps(changed(json.loads(path.read_text()))))
  assert cache.get() is None
  assert cache.get() is None
  (message,) = said
  assert f"{path} was modified or is incomplete" in message
  cache.put(_ADOPTED)
  assert cache.get() == _ADOPTED


def test_the_least_recently_used_plans_are_deleted_beyond_a_size_limit(
  tmp_path, said
):
  plan_cache.PlanCache(tmp_path, "first").put(_ADOPTED)
  (path,) = tmp_path.iterdir()
  max_bytes = 2 * path.stat().st_size + 3
  first, second, third = caches = [
    plan_cache.PlanCache(tmp_path, key, max_bytes=max_bytes, warn=said.append)
    for key in ("first", "second", "third")
  ]
  second.put(_ADOPTED)
  for age_s, name in ((2000, "first"), (1000, "second")):
    path = tmp_path / f"{name}.plan.json"
    long_ago_s = path.stat().st_mtime - age_s
    os.utime(path, (long_ago_s, long_ago_s))
  assert first.get() == _ADOPTED  # Now used more recently than the second.
  notes = tmp_path / "notes.json"
  notes.write_text("a user's")
  os.utime(notes, (0, 0))
  third.put(_ADOPTED)
  assert [cache.get() for cache in caches] == [_ADOPTED, None, _ADOPTED]
  assert notes.exists()
  third.drop()
  third.drop()
  assert third.get() is None
  assert said == []


def test_equal_steps_share_a_key_and_different_steps_do_not(monkeypatch):
  keys = [
    plan_cache.key(lowered(), _MACHINE),
    plan_cache.key(lowered(scale=3.0), _MACHINE),
    plan_cache.key(lowered(size=16), _MACHINE),
    plan_cache.key(lowered(donate_argnums=0), _MACHINE),
    plan_cache.key(
      lowered(compiler_options={"xla_cpu_enable_fast_math": True}), _MACHINE
    ),
    plan_cache.key(lowered(), "one H100"),
  ]
  for name, value in (
    ("XLA_FLAGS", "--xla_cpu_enable_fast_math=true"),
    ("NCCL_MAX_CTAS", "8"),
  ):
    with monkeypatch.context() as patched:
      patched.setenv(name, value)
      keys.append(plan_cache.key(lowered(), _MACHINE))
  assert len(set(keys)) == len(keys)
  assert plan_cache.key(lowered(), _MACHINE) == keys[0]


def test_an_nnx_step_has_the_key_of_the_jitted_function_inside():
  step = nnx.jit(lambda x: x + 1)
  outside: Any = step.lower(jnp.zeros(8))
  inside = plan_cache.key(outside.lowered, _MACHINE)
  assert plan_cache.key(outside, _MACHINE) == inside


def test_a_step_with_a_host_callback_has_a_key():
  def step(x: jax.Array) -> jax.Array:
    jax.debug.print("{x}", x=x)
    return x

  assert plan_cache.key(jax.jit(step).lower(jnp.zeros(8)), _MACHINE)


@pytest.mark.parametrize("name", ["file/plans", ""])
def test_a_folder_that_cannot_be_read_or_written_causes_one_message(
  name, cache, said, tmp_path
):
  if name:
    (tmp_path / "file").touch()
    cache = plan_cache.PlanCache(tmp_path / name, _KEY, warn=said.append)
  else:
    (tmp_path / f"{_KEY}.plan.json").mkdir()
    assert cache.get() is None
  cache.put(_ADOPTED)
  cache.put(_ADOPTED)
  assert cache.get() is None
  (message,) = said
  assert ("cannot be written" if name else "cannot be read") in message


def test_the_plan_folder_follows_the_argument_and_lagom_xla_cache(
  monkeypatch, tmp_path
):
  # LAGOM_XLA_CACHE=off; see conftest.py
  assert plan_cache.folder_of(True) is None
  monkeypatch.setenv("LAGOM_XLA_CACHE", str(tmp_path))
  assert plan_cache.folder_of(False) is None
  assert plan_cache.folder_of(tmp_path / "named") == tmp_path / "named"
  folder = plan_cache.folder_of(True)
  assert folder is not None and folder.name == "plans"
  assert tmp_path in folder.parents
  monkeypatch.delenv("LAGOM_XLA_CACHE")
  monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
  monkeypatch.setattr(os.path, "expanduser", lambda path: path)
  assert plan_cache.folder_of(True) is None  # A user without a home.
