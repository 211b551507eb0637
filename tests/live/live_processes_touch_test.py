# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A process that loses touch runs what the others run, whenever it does."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
import itertools
import pathlib
from typing import Any

import jax
import pytest

import job
from lagom_xla.jax_internals import store as store_lib
from lagom_xla.live import coordinator as coordinator_lib
import live_job
import live_step

# What a test of a loss that lasts is ready to wait for, in seconds.
_REACH_S = 0.3


class _Flaky:
  """A client of the job's store whose calls fail as `fails` says."""

  def __init__(self, client: Any, fails: Callable[[], bool]):
    self._client = client
    self._fails = fails

  def __getattr__(self, name: str) -> Any:
    real = getattr(self._client, name)

    def call(*args: Any) -> Any:
      if self._fails():
        raise jax.errors.JaxRuntimeError("UNAVAILABLE: failed to connect")
      return real(*args)

    return call


class _Deaf(_Flaky):
  """One whose calls come through, and whose answers are lost."""

  def __getattr__(self, name: str) -> Any:
    real = getattr(self._client, name)

    def call(*args: Any) -> Any:
      answer = real(*args)
      if self._fails():
        raise jax.errors.JaxRuntimeError("UNAVAILABLE: connection reset")
      return answer

    return call


def _with_client(kind: type[_Flaky], fails: Callable[[], bool]) -> None:
  """Has this process reach the others by such a client from now on."""
  store = store_lib.of_job()
  assert store is not None
  flaky = dataclasses.replace(store, _client=kind(store._client, fails))
  store_lib.of_job = lambda: flaky


def _failing_for_a_while(
  number: int, say: job.Say, *, victim: int, kind: type[_Flaky], run: int
) -> None:
  if number == victim:
    calls = itertools.count()
    # So many in a row fail, and then one does not.
    _with_client(kind, lambda: next(calls) % (run + 1) != run)
  say(live_job.train(live_step.Proposer({"faster": live_job.faster})))


@pytest.mark.parametrize(
  ("victim", "kind", "run"),
  [(0, _Flaky, 1), (1, _Flaky, 3), (0, _Deaf, 1), (1, _Deaf, 1)],
)
def test_calls_that_fail_for_a_while_change_nothing(
  victim: int, kind: type[_Flaky], run: int
):
  function = functools.partial(
    _failing_for_a_while, victim=victim, kind=kind, run=run
  )
  (one,), (other,) = (it.said for it in live_job.run(function))
  assert "faster: 0." in one.report and ", adopted" in one.report
  num_both = min(len(one.variants), len(other.variants))
  assert one.variants[:num_both] == other.variants[:num_both]
  assert one.warned == other.warned == []


def _lost(
  number: int,
  say: job.Say,
  *,
  victim: int,
  state: str,
  given_up: pathlib.Path,
) -> None:
  is_lost = False
  follow = coordinator_lib.Coordinator.follow

  def lose(self: coordinator_lib.Coordinator, played: Any) -> Any:
    nonlocal is_lost
    script = follow(self, played)
    if number == victim:
      if is_lost:
        given_up.touch()  # Nobody needs to wait for it any longer.
      is_lost = is_lost or script.state == state
    return script

  coordinator_lib.Coordinator.follow = lose
  limits = live_job.LIMITS
  if number == victim:
    _with_client(_Flaky, lambda: is_lost)
    limits = dataclasses.replace(limits, reach_s=_REACH_S)
  with live_job.time_flies(given_up):
    say(live_job.train(live_step.Proposer({"faster": live_job.faster}), limits))


@pytest.mark.parametrize(
  ("victim", "state", "in_use"),
  [
    (0, "baseline", 0),
    (0, "measure", 0),
    (1, "search", 0),
    (1, "candidate", 0),
    (1, "measure", 0),
    (1, "adopt", 1),
  ],
)
def test_who_loses_touch_for_good_runs_what_the_others_run(
  victim: int, state: str, in_use: int, tmp_path: pathlib.Path
):
  function = functools.partial(
    _lost, victim=victim, state=state, given_up=tmp_path / "given_up"
  )
  said = [it.said[0] for it in live_job.run(function)]
  num_both = min(len(it.variants) for it in said)
  assert said[0].variants[:num_both] == said[1].variants[:num_both]
  assert [it.variants[-1] for it in said] == [in_use, in_use]
  assert "now: stay" in said[victim].report
  assert "cannot reach each other" in said[victim].warned[0]


def _lost_at_a_gate(
  number: int, say: job.Say, *, given_up: pathlib.Path
) -> None:
  if number == 1:
    is_lost = False
    store = store_lib.of_job()
    assert store is not None
    put = store._client.key_value_set_bytes

    class Client(_Flaky):
      """Lost as soon as it has said that it is there, at the first gate."""

      def key_value_set_bytes(self, key: str, value: bytes) -> None:
        nonlocal is_lost
        if is_lost:
          raise jax.errors.JaxRuntimeError("UNAVAILABLE: failed to connect")
        put(key, value)
        is_lost = "scripts/" in key and "/votes/" in key

    _with_client(Client, lambda: is_lost)
  limits = live_job.LIMITS
  if number == 1:
    limits = dataclasses.replace(limits, reach_s=_REACH_S)
  follow = coordinator_lib.Coordinator.follow

  def tell(self: coordinator_lib.Coordinator, played: Any) -> Any:
    script = follow(self, played)
    if number == 1 and script.state == "stay":
      given_up.touch()
    return script

  coordinator_lib.Coordinator.follow = tell
  with live_job.time_flies(given_up):
    say(live_job.train(live_step.Proposer({"faster": live_job.faster}), limits))


def test_who_loses_touch_at_a_gate_goes_through_with_the_others(
  tmp_path: pathlib.Path,
):
  function = functools.partial(_lost_at_a_gate, given_up=tmp_path / "given_up")
  one, other = (it.said[0] for it in live_job.run(function))
  num_both = min(len(one.variants), len(other.variants))
  assert one.variants[:num_both] == other.variants[:num_both]
  assert 1 in other.variants  # The blocks of the candidate.
  assert one.variants[-1] == other.variants[-1] == 0
