# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Processes of a job apply the same plan or none, whoever fails or dies."""

from __future__ import annotations

import functools
import signal
import time

from hypothesis import given
from hypothesis import strategies as st
import pytest

import job
from lagom_xla import errors
from lagom_xla.jax_internals import store as store_lib
from lagom_xla.live import agreement

_PLAN = bytes(range(256)) * 2**13  # 2 MiB, that of a large plan.
_SHORT_S = 2.5
_LONG_S = 30


def _question(name: str) -> agreement.JobStore:
  job = store_lib.of_job()
  assert job is not None
  return agreement.next_store(name, range(job.num_processes))


def _adopt(number: int, say: job.Say, *, dies: dict[int, str], odd: int = -1):
  """What a process does with a plan, saying whether it would apply it."""

  def at(state: str) -> None:
    if dies.get(number) == state:
      job.die()

  store = _question("plan")
  wait_s = _SHORT_S if dies else _LONG_S
  at("start")
  try:
    if agreement.is_first(store):
      agreement.propose(store, _PLAN)
    plan = agreement.proposal(store, timeout_s=wait_s)
    assert plan == _PLAN
    at("proposed")
    vote = b"odd" if number == odd else b"alike"
    at("compiled")
    decision = agreement.decision(
      store, vote, agreement.all_equal, timeout_s=wait_s
    )
  except errors.ProcessesError as error:
    say((False, str(error)))
    return
  at("decided")
  assert agreement.refuse(store, "it comes too late.") == decision
  say((decision.is_agreed, decision.reason))


def test_a_plan_reaches_all_processes_as_it_is_and_all_apply_it():
  # Also where one dies after its vote.
  ended = job.run(functools.partial(_adopt, dies={1: "decided"}), 4)
  assert ended[1].said == []
  assert {ended[number].said[0] for number in (0, 2, 3)} == {(True, "")}


@pytest.mark.parametrize("state", ["start", "compiled"])
def test_where_one_dies_before_its_vote_the_others_stay_as_they_were(state):
  ended = job.run(functools.partial(_adopt, dies={2: state}), 3)
  assert ended[2].status == -signal.SIGKILL
  reason = f"process 2 did not answer within {_SHORT_S} s."
  assert [it.said for it in ended[:2]] == [[(False, reason)]] * 2


@pytest.mark.parametrize("state", ["proposed", "decided"])
def test_where_the_first_one_dies_no_process_hangs_or_applies_it_alone(state):
  ended = job.run(functools.partial(_adopt, dies={0: state}), 2)
  assert ended[0].status == -signal.SIGKILL
  # JAX ends the other one: its store is gone. If it came to speak before, it
  # had the decision, which nobody makes before the last vote.
  applied = [applies for applies, _ in ended[1].said]
  assert not any(applied) or state == "decided"


def test_what_one_process_came_to_otherwise_none_applies():
  for ended in job.run(functools.partial(_adopt, dies={}, odd=2), 3):
    assert ended.said == [
      (False, "process 2 came to something else than process 0.")
    ]


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
  start = time.monotonic()
  for ended in job.run(_refuse, 3):
    assert ended.said == ["process 1: its compile failed."]
  assert time.monotonic() - start < _LONG_S


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
