# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The processes of a job run the same variant at each call, whoever fails."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
import os
import pathlib
import signal
import threading
from typing import Any
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import job
import lagom_xla
from lagom_xla.compile import _jax_store
from lagom_xla.live import composer as composer_lib
from lagom_xla.live import ending
from lagom_xla.live import platforms
from lagom_xla.live.loop import loop as loop_lib
import live_step
import quick

_PATIENCE = composer_lib.Patience(
  limits=loop_lib.Limits(search_s=20, compile_s=5, overhead_steps=1e9),
  script_s=3.0,
)
_LONG = dataclasses.replace(
  _PATIENCE, limits=dataclasses.replace(_PATIENCE.limits, compile_s=20)
)


def _run(
  function: Callable[[int, job.Say], None], num_processes: int = 2
) -> list[job.Ended]:
  """Runs a function in the processes of a job, with a device in each."""
  one = f"--xla_force_host_platform_device_count=1 {quick.flags()}"
  environ = {"XLA_FLAGS": one}
  return job.run(
    function, num_processes, dict.fromkeys(range(num_processes), environ)
  )


def _faster(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
  return live_step.sleeping(0.0)(lowered)


def _only_in(
  process: int, special: Callable[..., Any]
) -> Callable[..., jax.stages.Compiled]:
  """What one process does in place of compiling, and the others do not."""

  def compile_(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    if jax.process_index() == process:
      special(lowered)
    return _faster(lowered)

  return compile_


def _hang(lowered: jax.stages.Lowered) -> None:
  del lowered
  threading.Event().wait(30)


class _OddDigest(live_step.Proposer):
  """Comes to other collectives for one proposal in process 1."""

  def digest(self, compiled: jax.stages.Compiled) -> bytes:
    is_odd = self.compiled[-1] == "odd" and jax.process_index() == 1
    return b"odd" if is_odd else b"alike"


def _train(
  proposer: live_step.Proposer,
  patience: composer_lib.Patience,
  is_over: Callable[[str], bool],
) -> tuple[list[int], list[str], str]:
  """Trains, this process for itself but in step with the others.

  Nothing that is computed crosses processes, so that those that live on can.

  Returns:
    The variant of each call, what was warned of, and the report.
  """
  _jax_store.processes_of = lambda lowered: frozenset(
    range(jax.process_count())
  )
  platforms.proposer_of = lambda *unused, **options: proposer
  variants = []
  with (
    live_step.proposed_by(proposer, patience),
    warnings.catch_warnings(record=True) as warned,
  ):
    warnings.simplefilter("always")
    step: Any = lagom_xla.tune(
      jax.jit(live_step.train_step(0.004), donate_argnums=0)
    )
    jitted = jax.jit(live_step.train_step(), donate_argnums=0)
    ours, theirs = live_step.state(), live_step.state()
    num_after = 0
    for number in range(20_000):
      x = live_step.batch(number % 50)
      ours, our_loss = step(ours, x)
      theirs, their_loss = jitted(theirs, x)
      assert np.asarray(our_loss) == np.asarray(their_loss)
      variants.append(step._current.variant)
      num_after += is_over(step.report())
      if num_after > 3:
        break
  return variants, [str(warning.message) for warning in warned], step.report()


def _is_done(report: str) -> bool:
  return "now: watch" in report or "now: stay" in report


def _with_failures(number: int, say: job.Say) -> None:
  def refuse(lowered: jax.stages.Lowered) -> None:
    raise ValueError("no such option")

  proposer = _OddDigest(
    {
      "refused": _only_in(1, refuse),
      "odd": _faster,
      "faster": _faster,
    }
  )
  variants, warned, report = _train(proposer, _LONG, _is_done)
  say((variants, warned, report))


def test_all_of_four_run_the_same_variant_at_each_call_whatever_fails():
  ended = _run(_with_failures, 4)
  ((variants, _, report),) = ended[0].said
  assert "refused: not measured: process 1: no such option" in report
  assert "odd: not measured: process 1 came to something else" in report
  assert "faster: 0." in report and ", adopted" in report
  assert set(variants) == {0, 3}
  for it in ended:
    ((theirs, warned, _),) = it.said
    assert theirs[: len(variants)] == variants[: len(theirs)]
    assert abs(len(theirs) - len(variants)) <= 1
    assert warned == []


def _dying(number: int, say: job.Say, *, victim: int, state: str) -> None:
  real = composer_lib.Composer.follow

  def follow(self: composer_lib.Composer, played: Any) -> Any:
    script = real(self, played)
    if number == victim and script.state == state:
      job.die()
    return script

  composer_lib.Composer.follow = follow
  patience = _LONG if state in _AFTER_VOTES else _PATIENCE
  variants, _, report = _train(_proposer_to(state), patience, _is_done)
  say((variants[-1], report))


# States in which the others need no more votes of the one that dies.
_AFTER_VOTES = ("measure", "adopt", "reject", "watch")


def _proposer_to(state: str) -> live_step.Proposer:
  """Who makes proposals that lead to a state."""
  makers: dict[str, Any] = {"faster": _faster}
  if state == "reject":
    makers = {"slower": live_step.sleeping(0.02)}
  if state == "stay":
    makers = {"hangs": _only_in(0, _hang)}
  return live_step.Proposer(makers)


@pytest.mark.parametrize(
  ("state", "in_use"),
  [
    ("baseline", 0),
    ("profile", 0),
    ("candidate", 0),
    ("measure", 1),
    ("adopt", 1),
    ("reject", 0),
    ("watch", 1),
    ("stay", 0),
  ],
)
def test_where_one_dies_the_others_go_on(state: str, in_use: int):
  function = functools.partial(_dying, victim=1, state=state)
  ended = _run(function, 4 if state == "measure" else 2)
  assert ended[1].status == -signal.SIGKILL
  assert ended[1].said == []
  for number, it in enumerate(ended):
    if number != 1:
      ((last, report),) = it.said
      assert last == in_use
      if state == "stay":
        assert "process 0 did not compile hangs within 5 s" in report


def test_where_the_first_one_dies_no_process_hangs_or_runs_a_candidate():
  function = functools.partial(_dying, victim=0, state="search")
  first, other = _run(function)
  assert first.status == -signal.SIGKILL
  # JAX ends it, as its store is gone, or it goes on with the step as it was.
  assert [last for last, _ in other.said] in ([], [0])


def _over_all(number: int, say: job.Say) -> None:
  """A step that all processes take together, with collectives."""
  mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
  rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
  shape = (mesh.size, 4)
  x = jax.make_array_from_callback(
    shape, rows, lambda index: np.ones(shape, np.float32)[index]
  )

  def step(x: jax.Array) -> jax.Array:
    return x / jnp.sum(x) * shape[0]

  def again(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    options: Any = {"xla_cpu_enable_fast_math": False}
    return lowered.compile(compiler_options=options)

  jitted = jax.jit(step, donate_argnums=0)
  expected = jitted(jnp.copy(x))
  proposer = live_step.Proposer({"again": again})
  with live_step.proposed_by(proposer):
    tuned = lagom_xla.tune(jax.jit(step, donate_argnums=0))
    for _ in range(80):
      x = jax.block_until_ready(tuned(x))
      expected = jax.block_until_ready(jitted(expected))
  ours, theirs = (
    [np.asarray(shard.data).tobytes() for shard in it.addressable_shards]
    for it in (x, expected)
  )
  say((ours == theirs, proposer.compiled))


def test_a_step_with_collectives_gives_the_same_bits_in_all_processes():
  for ended in _run(_over_all):
    assert ended.said == [(True, ["again"])]


def _remembering(number: int, say: job.Say, *, folder: str) -> None:
  os.environ["LAGOM_XLA_CACHE"] = f"{folder}/{number}"
  proposer = live_step.Proposer({"faster": _faster})
  _, _, report = _train(proposer, _LONG, _is_done)
  ending.join()
  say((len(proposer.measured), proposer.compiled, report))


def test_the_first_process_remembers_for_all(tmp_path: pathlib.Path):
  function = functools.partial(_remembering, folder=str(tmp_path))
  _run(function)
  assert [path.name for path in tmp_path.iterdir()] == ["0"]
  first, other = _run(function)
  ((num_searches, compiled, report),) = first.said
  assert (num_searches, compiled) == (0, ["faster"])
  assert "no search, as that of" in report
  ((_, theirs, _),) = other.said
  assert theirs == compiled
