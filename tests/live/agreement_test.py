# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Processes of a job apply the same plan or none, whoever fails or dies."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
import os
import pathlib
import signal
import types
from typing import Any
import warnings

from hypothesis import given
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import job
import lagom_xla
from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.apply import checked
from lagom_xla.jax_internals import store as store_lib
from lagom_xla.live import agreement
from lagom_xla.live import proposals
from lagom_xla.tuner import tuner
import live_job
from plan_nodes import Node
from plan_nodes import maker
from sample_plan import PLAN

_PLAN = bytes(range(256)) * 2**13  # 2 MiB, like a large plan.
_LONG_S = 600.0


def _question(name: str) -> agreement.JobStore:
  job = store_lib.of_job()
  assert job is not None
  return agreement.next_store(name, range(job.num_processes))


def _adopt(
  number: int, say: job.Say, *, victim: int, state: str, dead: pathlib.Path
) -> None:
  """Agrees on a plan in a process; says whether it would apply the plan."""
  store = _question("plan")

  def at(reached: str) -> None:
    if number == victim and reached == state:
      for other in store.members[:number]:  # Earlier members vote at once.
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


def test_a_plan_reaches_all_processes_unchanged_and_all_apply_it(tmp_path):
  # Process 1 dies after it has voted.
  function = functools.partial(
    _adopt, victim=1, state="decided", dead=tmp_path / "dead"
  )
  ended = job.run(function, 3)
  assert [it.said for it in ended] == [[(True, "")], [], [(True, "")]]


def test_no_process_applies_a_plan_if_one_dies_before_its_vote(tmp_path):
  function = functools.partial(
    _adopt, victim=2, state="proposed", dead=tmp_path / "dead"
  )
  ended = job.run(function, 3)
  assert ended[2].status == -signal.SIGKILL
  reason = f"process 2 did not answer within {_LONG_S:g} s."
  assert [it.said for it in ended[:2]] == [[(False, reason)]] * 2


def test_no_process_hangs_or_applies_a_plan_if_the_first_one_dies(tmp_path):
  function = functools.partial(
    _adopt, victim=0, state="proposed", dead=tmp_path / "dead"
  )
  first, other = job.run(function)
  assert first.status == -signal.SIGKILL
  # JAX may end the other process, whose store is gone, before it reports.
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
  # A process that asks for the proposal later gets the refusal instead.
  with pytest.raises(errors.ProcessesError, match="its compile failed"):
    agreement.proposal(store, timeout_s=_LONG_S)


def test_a_refusal_by_one_process_ends_the_wait_of_all():
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


def test_a_process_that_votes_after_the_timeout_gets_the_decision_made():
  first, late = job.run(_come_late)
  assert first.said == late.said
  assert first.said == [
    (False, False, "process 1 did not answer within 0.2 s.")
  ]


@given(st.sets(st.integers(0, 40), min_size=1))
def test_process_ranges_in_messages_name_exactly_the_given_processes(processes):
  noun, _, words = agreement.in_words(processes).partition(" ")
  assert noun == ("process" if len(processes) == 1 else "processes")
  named = []
  for run in words.split(", "):
    first, _, last = run.partition("-")
    named += range(int(first), int(last or first) + 1)
  assert named == sorted(processes)


@pytest.fixture
def new_node(tmp_path) -> Callable[..., Node]:
  return maker(tmp_path)


def _check(number: int, say: job.Say) -> None:
  del number
  try:
    lagom_xla.check_processes()
  except errors.SettingsDifferError as error:
    say(str(error))


def test_all_processes_raise_the_same_error_naming_the_odd_process(new_node):
  node, broken = new_node(), new_node()
  environs = {number: node.environ() for number in range(3)}
  environs[2] = broken.environ()
  broken.table.write_bytes(b"")
  ended = job.run(_check, 3, environs)
  assert len({it.said[0] for it in ended}) == 1
  assert "in processes 0-1 on" in ended[0].said[0]
  assert (
    f"refused ({broken.table} is not a table: it is too short.)"
    in (ended[0].said[0])
  )


def _check_without_the_last(number: int, say: job.Say) -> None:
  if number == 1:
    job.die()
  with pytest.raises(errors.ProcessesError) as raised:
    lagom_xla.check_processes(timeout_s=1)
  say((type(raised.value).__name__, str(raised.value)))


def test_a_process_that_does_not_answer_is_named():
  first, _ = job.run(_check_without_the_last)
  ((kind, said),) = first.said
  assert kind == "ProcessesError"
  assert "process 1 did not answer within 1 s" in said


def _over_all_processes() -> jax.Array:
  """An array with a one for each device of the job."""
  mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
  rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
  shape = (mesh.size,)
  return jax.make_array_from_callback(
    shape, rows, lambda index: np.ones(shape)[index]
  )


def _call_tuned_step(number: int, say: job.Say) -> None:
  del number
  step = lagom_xla.tune(jax.jit(jnp.sum))
  with pytest.raises(errors.SettingsDifferError, match="NCCL_ALGO is tree in"):
    step(_over_all_processes())
  proposals.platform_of = lambda lowered: "tpu"  # Nothing is tuned there.
  with pytest.warns(RuntimeWarning, match="tpu devices cannot be tuned"):
    say(float(step(jnp.ones(3))))  # Only this process: no hang.


def test_differing_nccl_settings_raise_before_the_step_hangs():
  environs = {0: {"NCCL_ALGO": "tree"}, 1: {"NCCL_ALGO": "ring"}}
  for ended in job.run(_call_tuned_step, environ=environs):
    assert ended.said == [3.0]


def _call_other_steps(number: int, say: job.Say) -> None:
  """Calls steps that the second process compiles or writes differently."""
  batch = _over_all_processes()
  gather = {"xla_gpu_all_gather_combine_threshold_bytes": 8}
  if number:
    jax.config.update("jax_compilation_cache_dir", "/elsewhere")
  for factor, options, level in (
    (2.0, {}, "O1"),
    (2.0, gather, "UNKNOWN"),
    (3.0, {}, "UNKNOWN"),
  ):
    jax.config.update("jax_optimization_level", level if number else "UNKNOWN")
    step = lagom_xla.tune(
      jax.jit(
        functools.partial(_scaled_sum, factor if number else 2.0),
        compiler_options=options if number else {},
      )
    )
    with pytest.raises(errors.SettingsDifferError) as raised:
      step(batch)
    say(str(raised.value))


def _scaled_sum(factor: float, x: jax.Array) -> jax.Array:
  return jnp.sum(factor * x)


def test_differing_programs_or_compiler_options_raise_in_all_processes():
  one, other = job.run(_call_other_steps)
  assert one.said == other.said
  by_level, by_option, by_constant = one.said
  assert "optimization_level is not set in process 0" in by_level
  assert " and O1 in process 1" in by_level
  assert "--xla_gpu_all_gather_combine_threshold_bytes is not" in by_option
  assert "cache" not in by_level + by_option
  assert "process 1 on" in by_constant
  assert "in lines 1 to 16 of step.lower(...).as_text()" in by_constant


def _tune_on_predictions(
  number: int, say: job.Say, *, failing: int | None
) -> None:
  batch = _over_all_processes()
  jitted = jax.jit(lambda x: jnp.sum(2 * x))
  searched = []

  def tune(target: Any, **unused_options: Any) -> Any:
    searched.append(number)
    if number == failing:
      raise ValueError("no memory")
    plan = _plan_of(target)
    return types.SimpleNamespace(plan=plan, compiled=target.compile())

  def compile_with(plan: plan_lib.Plan, target: Any) -> Any:
    if number == failing:
      raise ValueError("no memory")
    assert plan == _plan_of(target)
    return target.compile()

  tuner.tune = tune
  checked.compile_with = compile_with
  step = lagom_xla.tune(jitted, cluster="2x8xh100", measure=False)
  with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    say(float(step(batch)))
  say([str(warning.message) for warning in warned])
  say((searched, len(step.tunings)))


def _plan_of(target: Any) -> plan_lib.Plan:
  return dataclasses.replace(PLAN, cluster=target.cluster)


def test_only_the_first_process_searches_and_it_shares_its_plan():
  first, other = job.run(functools.partial(_tune_on_predictions, failing=None))
  assert first.said == [32.0, [], ([0], 1)]
  assert other.said == [32.0, [], ([], 0)]


@pytest.mark.parametrize("failing", [0, 1])
def test_all_processes_run_the_original_step_if_tuning_fails_in_one(failing):
  ended = job.run(functools.partial(_tune_on_predictions, failing=failing))
  for number in range(2):
    value, (warned,), _ = ended[number].said
    assert value == 32.0
    if number == failing:
      assert "unchanged: ValueError: no memory" in warned
    else:
      assert f"unchanged: process {failing}: no memory" in warned


def test_check_processes_passes_in_a_job_of_one_process(monkeypatch):
  monkeypatch.setattr(os, "environ", {**os.environ, "NCCL_ALGO": "tree"})
  lagom_xla.check_processes()
