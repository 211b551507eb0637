# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Processes of a job apply the same plan or none, whoever fails or dies."""

from __future__ import annotations

import functools
import pathlib
import signal

from hypothesis import given
from hypothesis import strategies as st
import pytest

import job
from lagom_xla import errors
from lagom_xla.jax_internals import store as store_lib
from lagom_xla.live import agreement
import live_job

_PLAN = bytes(range(256)) * 2**13  # 2 MiB, that of a large plan.
_LONG_S = 600.0


def _question(name: str) -> agreement.JobStore:
  job = store_lib.of_job()
  assert job is not None
  return agreement.next_store(name, range(job.num_processes))


def _adopt(
  number: int, say: job.Say, *, victim: int, state: str, dead: pathlib.Path
) -> None:
  """What a process does with a plan, saying whether it would apply it."""
  store = _question("plan")

  def at(reached: str) -> None:
    if number == victim and reached == state:
      for other in store.members[:number]:  # Those do not wait for each other.
        store.get(f"question/votes/{other}", timeout_s=_LONG_S)
      dead.touch()
      job.die()

  with live_job.time_flies(dead.with_name("never") if number else dead):
    try:
      if agreement.is_first(store):
        agreement.propose(store, _PLAN)
      plan = agreement.proposal(store, timeout_s=_LONG_S)
      assert plan == _PLAN
      at("proposed")
      decision = agreement.decision(
        store, b"alike", agreement.all_equal, timeout_s=_LONG_S
      )
    except errors.ProcessesError as error:
      say((False, str(error)))
      return
    at("decided")
    assert agreement.refuse(store, "it comes too late.") == decision
    say((decision.is_agreed, decision.reason))


def test_a_plan_reaches_all_processes_as_it_is_and_all_apply_it(tmp_path):
  # Also where one dies after its vote.
  function = functools.partial(
    _adopt, victim=1, state="decided", dead=tmp_path / "dead"
  )
  ended = job.run(function, 3)
  assert [it.said for it in ended] == [[(True, "")], [], [(True, "")]]


def test_where_one_dies_before_its_vote_the_others_stay_as_they_were(tmp_path):
  function = functools.partial(
    _adopt, victim=2, state="proposed", dead=tmp_path / "dead"
  )
  ended = job.run(function, 3)
  assert ended[2].status == -signal.SIGKILL
  reason = f"process 2 did not answer within {_LONG_S:g} s."
  assert [it.said for it in ended[:2]] == [[(False, reason)]] * 2


def test_where_the_first_one_dies_no_process_hangs_or_applies_it(tmp_path):
  function = functools.partial(
    _adopt, victim=0, state="proposed", dead=tmp_path / "dead"
  )
  first, other = job.run(function)
  assert first.status == -signal.SIGKILL
  # JAX ends the other one, whose store is gone, if it does not come to speak.
  assert not any(applies for applies, _ in other.said)


def _refuse(number: int, say: job.Say) -> None:
  store = _question("plan")
  if number == 1:
    decision = agreement.refuse(store, "its compile failed.")
  else:
    decision = agreement.decision(
      store, b"", agreement.all_equal, timeout_s=_LONG_S
    )
  say(decision.reason)
  # Whoever comes later hears the same, and of no proposal.
  with pytest.raises(errors.ProcessesError, match="its compile failed"):
    agreement.proposal(store, timeout_s=_LONG_S)


def test_a_refusal_of_one_ends_the_wait_of_all():
  for ended in job.run(_refuse, 3):
    assert ended.said == ["process 1: its compile failed."]


def _come_late(number: int, say: job.Say) -> None:
  store = _question("late")
  if number == 1:
    store.get("the first one gave up", timeout_s=_LONG_S)
  wait_s = _LONG_S if number == 1 else 0.2
  decision = agreement.decision(
    store, b"", agreement.all_equal, timeout_s=wait_s
  )
  store.put("the first one gave up", b"")
  say((decision.is_agreed, decision.is_answered, decision.reason))


def test_who_comes_after_the_time_out_gets_the_decision_of_the_others():
  first, late = job.run(_come_late)
  assert first.said == late.said
  assert first.said == [
    (False, False, "process 1 did not answer within 0.2 s.")
  ]


@given(st.sets(st.integers(0, 40), min_size=1))
def test_a_message_names_exactly_the_processes(processes):
  noun, _, words = agreement.in_words(processes).partition(" ")
  assert noun == ("process" if len(processes) == 1 else "processes")
  named = []
  for run in words.split(", "):
    first, _, last = run.partition("-")
    named += range(int(first), int(last or first) + 1)
  assert named == sorted(processes)
