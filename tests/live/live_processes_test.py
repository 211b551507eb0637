# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The processes of a job run the same variant at each call, whoever fails."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
import itertools
import os
import pathlib
import signal
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import job
import lagom_xla
from lagom_xla.jax_internals import store as store_lib
from lagom_xla.live import coordinator as coordinator_lib
from lagom_xla.live import shutdown
import live_job
import live_step


def _only_in(
  process: int, special: Callable[..., Any]
) -> Callable[..., jax.stages.Compiled]:
  """A compile function that acts differently in one process."""

  def compile_(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    if jax.process_index() == process:
      special(lowered)
    return live_job.faster(lowered)

  return compile_


class _OddDigest(live_step.Proposer):
  """Gives other collectives for one proposal in process 1."""

  def digest(self, compiled: jax.stages.Compiled) -> str:
    is_odd = self.compiled[-1] == "odd" and jax.process_index() == 1
    return "odd" if is_odd else "alike"


def _with_failures(number: int, say: job.Say) -> None:
  def refuse(lowered: jax.stages.Lowered) -> None:
    raise ValueError("no such option")

  proposer = _OddDigest(
    {
      "refused": _only_in(1, refuse),
      "odd": live_job.faster,
      "faster": live_job.faster,
    }
  )
  say(live_job.train(proposer))


def test_three_processes_run_the_same_variant_at_each_call_despite_failures():
  ended = live_job.run(_with_failures, 3)
  (first,) = ended[0].said
  report, variants = first.report, first.variants
  assert "refused: not measured: process 1: no such option" in report
  assert "odd: not measured: process 1 got another result" in report
  assert "faster: 0." in report and ", adopted" in report
  assert set(variants) == {0, 3}
  for it in ended:
    (trained,) = it.said
    theirs = trained.variants
    assert theirs[: len(variants)] == variants[: len(theirs)]
    assert abs(len(theirs) - len(variants)) <= 1
    assert trained.warned == []


def _after_each_phase(tell: Callable[[Any], None]) -> None:
  """Reports each phase that this process is about to run."""
  real = coordinator_lib.Coordinator.follow

  def follow(self: coordinator_lib.Coordinator, times: Any) -> Any:
    phase = real(self, times)
    tell(phase)
    return phase

  coordinator_lib.Coordinator.follow = follow


def _noted_once_in(member: int, note: pathlib.Path) -> Any:
  """The first process's view of votes; touches a file after a member's vote."""
  real = coordinator_lib._FirstProcess.votes

  def votes(self: coordinator_lib._FirstProcess, number: int) -> Any:
    found = real(self, number)
    if member in found:
      note.touch()
    return found

  return votes


def _dying(
  number: int, say: job.Say, *, victim: int, state: str, dead: pathlib.Path
) -> None:

  def follow(phase: Any) -> None:
    if number == victim and phase.state == state:
      dead.touch()
      job.die()

  def hang(lowered: jax.stages.Lowered) -> None:
    del lowered
    threading.Event().wait()

  makers: dict[str, Any] = {"faster": live_job.faster}
  if state == "stopped":
    makers = {"hangs": _only_in(0, hang)}
    # Time flies only once the process that does not hang has voted; otherwise
    # the error would name that process, too.
    coordinator_lib._FirstProcess.votes = _noted_once_in(victim, dead)
  _after_each_phase(follow)
  # The process that does not hang waits for the decision of process 0.
  waits = number == victim and state == "stopped"
  with live_job.time_flies(dead.with_name("never") if waits else dead):
    trained = live_job.train(live_step.Proposer(makers))
  say((trained.variants[-1], trained.report))


@pytest.mark.parametrize(
  ("state", "in_use"), [("measuring", 0), ("adopted", 1), ("stopped", 0)]
)
def test_the_other_processes_continue_if_one_dies(state, in_use, tmp_path):
  function = functools.partial(
    _dying, victim=1, state=state, dead=tmp_path / "dead"
  )
  ended = live_job.run(function, 3 if state == "measuring" else 2)
  assert ended[1].status == -signal.SIGKILL
  assert ended[1].said == []
  for number, it in enumerate(ended):
    if number != 1:
      ((last, report),) = it.said
      assert last == in_use
      if state == "stopped":
        assert "process 0 did not compile hangs within" in report
      if state == "measuring":
        # Time flies, so others may not have arrived, either.
        assert "did not arrive within" in report


def test_no_process_hangs_or_runs_a_candidate_if_the_first_one_dies(
  tmp_path,
):
  function = functools.partial(
    _dying, victim=0, state="searching", dead=tmp_path / "dead"
  )
  first, other = live_job.run(function)
  assert first.status == -signal.SIGKILL
  # JAX ends the other process, whose store is gone, or it runs jit's step.
  assert [last for last, _ in other.said] in ([], [0])


def _over_all(number: int, say: job.Say) -> None:
  """Runs a step of all processes together, with collectives."""
  mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
  rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
  shape = (mesh.size, 4)
  x = jax.make_array_from_callback(
    shape, rows, lambda index: np.ones(shape, np.float32)[index]
  )

  def step(x: jax.Array) -> jax.Array:
    return x / jnp.sum(x) * shape[0]

  jitted = jax.jit(step, donate_argnums=0)
  expected = jitted(jnp.copy(x))
  proposer = live_step.Proposer({"again": live_step.again})
  with live_step.proposed_by(proposer):
    tuned = lagom_xla.tune(jax.jit(step, donate_argnums=0))
    for _ in range(live_step.NUM_CALLS):
      x = jax.block_until_ready(tuned(x))
      expected = jax.block_until_ready(jitted(expected))
  ours, theirs = (
    [np.asarray(shard.data).tobytes() for shard in it.addressable_shards]
    for it in (x, expected)
  )
  say((ours == theirs, proposer.compiled))


def test_a_step_with_collectives_gives_jits_bits_in_all_processes():
  for ended in live_job.run(_over_all):
    assert ended.said == [(True, ["again"])]


def _remembering(number: int, say: job.Say, *, folder: str) -> None:
  os.environ["LAGOM_XLA_CACHE"] = f"{folder}/{number}"
  proposer = live_step.Proposer({"faster": live_job.faster})
  live_job.train(proposer)
  shutdown.join(live_step.HANGS_S)
  again = live_job.train(proposer)
  say((len(proposer.measured), proposer.compiled, again.report))


def test_the_first_process_remembers_the_plan_for_all_processes(tmp_path):
  first, other = live_job.run(
    functools.partial(_remembering, folder=str(tmp_path))
  )
  assert [path.name for path in tmp_path.iterdir()] == ["0"]
  ((num_searches, compiled, report),) = first.said
  assert (num_searches, compiled) == (1, ["faster"] * 2)
  assert "no search: the plan of" in report
  ((_, theirs, _),) = other.said
  assert theirs == compiled


# Limit in seconds after which a connection counts as lost.
_REACH_S = 0.3


@dataclasses.dataclass(eq=False)  # Clients are compared by identity.
class _Flaky:
  """A client of the job's store whose calls fail if `fails` says so.

  If it is deaf, calls arrive, but their answers are lost.
  """

  client: Any
  fails: Callable[..., bool]
  is_deaf: bool

  def __getattr__(self, name: str) -> Any:
    real = getattr(self.client, name)

    def call(*args: Any) -> Any:
      fails = self.fails(name, *args)
      answer = real(*args) if self.is_deaf or not fails else None
      if fails:
        raise jax.errors.JaxRuntimeError("UNAVAILABLE: failed to connect")
      return answer

    return call


def _fail(fails: Callable[..., bool], *, is_deaf: bool = False) -> None:
  """Makes this process's calls to the others fail from now on."""
  store = store_lib.of_job()
  assert store is not None
  client = _Flaky(store._client, fails, is_deaf)
  flaky = dataclasses.replace(store, _client=client)
  store_lib.of_job = lambda: flaky


def _failing_for_a_while(number: int, say: job.Say) -> None:
  """Makes every other call fail, or in the first process, its answer."""
  calls = itertools.count()
  _fail(lambda *_: next(calls) % 2 == 0, is_deaf=number == 0)
  say(live_job.train(live_step.Proposer({"faster": live_job.faster})))


def test_temporary_store_failures_change_nothing():
  (one,), (other,) = (it.said for it in live_job.run(_failing_for_a_while))
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
  """One process loses its connection in a state, or after a gate."""
  is_lost = False
  limits = live_job.LIMITS

  def lose(phase: Any) -> None:
    nonlocal is_lost
    if is_lost and (state != "gate" or phase.state == "stopped"):
      given_up.touch()  # Nobody needs to wait for it any longer.
    is_lost = is_lost or phase.state == state

  def is_failing(name: str = "", *args: Any) -> bool:
    nonlocal is_lost
    was_lost = is_lost
    if name == "key_value_set_bytes" and state == "gate":
      is_lost = was_lost or ("phases/" in args[0] and "/votes/" in args[0])
    return was_lost

  if number == victim:
    _after_each_phase(lose)
    _fail(is_failing)
    limits = dataclasses.replace(limits, reach_s=_REACH_S)
  with live_job.time_flies(given_up):
    say(live_job.train(live_step.Proposer({"faster": live_job.faster}), limits))


@pytest.mark.parametrize(
  ("victim", "state", "in_use"),
  [(0, "measuring", 0), (1, "adopted", 1), (1, "gate", 0)],
)
def test_a_disconnected_process_runs_the_same_variants_as_the_others(
  victim, state, in_use, tmp_path
):
  function = functools.partial(
    _lost, victim=victim, state=state, given_up=tmp_path / "given_up"
  )
  said = [it.said[0] for it in live_job.run(function)]
  num_both = min(len(it.variants) for it in said)
  assert said[0].variants[:num_both] == said[1].variants[:num_both]
  assert [it.variants[-1] for it in said] == [in_use, in_use]
  assert "now: stopped" in said[victim].report
  assert "cannot reach each other" in said[victim].warned[0]
  if state == "gate":
    assert 1 in said[victim].variants  # The blocks of the candidate.
