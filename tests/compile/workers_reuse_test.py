# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Workers compile nothing twice, and leave what nobody waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import os
import pathlib
import signal
import time
from typing import Any

import jax
import pytest

import commands
import compiles
from lagom_xla.compile import cache as cache_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import job as job_lib
from lagom_xla.compile import pool as pool_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.compile import worker as worker_lib
from lagom_xla.passes.schedule import digest

# From JAX 0.12 on the default is compiled with tiles, too, to see that it can.
_NUM_COMPILES_OF_DEFAULT = 2 if jax.__version_info__ >= (0, 12) else 1


class _CountingCache(cache_lib.Cache):
  num_puts = 0

  def put(self, digest: str, result: job_lib.Result) -> None:
    super().put(digest, result)
    self.num_puts += 1


@pytest.fixture(scope="module")
def here(
  fsdp_step: Callable[..., jax.stages.Lowered],
) -> target_lib.StepTarget:
  return compiles.target(fsdp_step())


def test_what_was_started_is_compiled_once(
  here: target_lib.StepTarget, tmp_path: pathlib.Path
) -> None:
  cache = _CountingCache(tmp_path)
  configs = [
    config_lib.XlaConfig(options={compiles.IN_FLIGHT: n}) for n in (2, 3, 4)
  ]
  with pool_lib.Pool(1, cache=cache) as pool:
    target = here.with_workers(pool)
    with target.started([*configs, compiles.ABORTS]):
      for config in configs:
        assert target.schedule(config).is_scheduled
    # A second time, all of it is at hand.
    for config in configs:
      assert target.schedule(config).is_scheduled
  # With the module after fusion, where others went on from that.
  assert cache.num_puts == len(configs) + 1


def test_another_pool_goes_on_from_what_was_compiled(
  here: target_lib.StepTarget, tmp_path: pathlib.Path
) -> None:
  compiled = []
  caches = [_CountingCache(tmp_path) for _ in range(2)]
  for cache in caches:
    with pool_lib.Pool(1, cache=cache) as pool:
      compiled.append(here.with_workers(pool).schedule().proto)
  assert compiled[0] == compiled[1]
  assert [cache.num_puts for cache in caches] == [_NUM_COMPILES_OF_DEFAULT, 0]


def test_without_a_cache_a_pool_compiles_nothing_twice(
  here: target_lib.StepTarget,
) -> None:
  with pool_lib.Pool(1) as pool:
    target = here.with_workers(pool)
    first = target.schedule()
    (pid,) = pool.worker_pids
    os.kill(pid, signal.SIGSTOP)  # Nothing is compiled any more.
    assert target.schedule().proto == first.proto


def test_what_is_compiled_first_changes_no_schedule(
  here: target_lib.StepTarget,
) -> None:
  found = []
  for limits in ((3, 4), (4, 3)):
    schedules = {}
    with pool_lib.Pool(1) as pool:
      target = here.with_workers(pool)
      for limit in limits:
        config = config_lib.XlaConfig(options={compiles.IN_FLIGHT: limit})
        schedules[limit] = compiles.text(target.schedule(config))
    found.append(schedules)
  assert found[0] == found[1]


def test_who_goes_by_xlas_names_gets_them(here: target_lib.StepTarget) -> None:
  first, config = (
    config_lib.XlaConfig(options={compiles.IN_FLIGHT: n}) for n in (3, 4)
  )
  with pool_lib.Pool(1) as pool:
    target = here.with_workers(pool)
    target.schedule(first)  # Compiles what others may start from.
    found = target.schedule(config)
    named = target.from_the_beginning().schedule(config)
    # Others get what they got.
    assert target.schedule(config).proto == found.proto
  assert digest.of(found.proto) == digest.of(named.proto)
  assert compiles.text(named) == compiles.text(here.schedule(config))


def test_a_long_compile_that_was_dropped_ends_where_another_waits(
  here: target_lib.StepTarget,
) -> None:
  first, *configs = (
    config_lib.XlaConfig(options={compiles.IN_FLIGHT: n}) for n in (4, 2, 3)
  )
  with pool_lib.Pool(1, worth_stopping_s=0.0) as pool:
    target = here.with_workers(pool)
    target.schedule(first)  # Compiles what all start from, which none drops.
    (pid,) = pool.worker_pids
    os.kill(pid, signal.SIGSTOP)  # From here on it takes for ever.
    stopped_s = time.monotonic()
    with target.started(configs[:1]):
      while not pool.num_at_work:
        time.sleep(0.01)
    assert target.schedule(configs[1]).is_scheduled
    assert pid not in pool.worker_pids
  # Not as one that hangs, which is given five minutes.
  assert time.monotonic() - stopped_s < compiles.LONGEST_S


def test_a_worker_that_is_stopped_as_it_answers_gets_no_other_job(
  here: target_lib.StepTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
  run = worker_lib.Worker.run
  asked, answered = [], []

  def stopped_after(
    worker: worker_lib.Worker, job: job_lib.Job, *others: Any
  ) -> job_lib.Result:
    asked.append(job)
    result = run(worker, job, *others)
    worker.stop()
    answered.append(job)
    return result

  monkeypatch.setattr(worker_lib.Worker, "run", stopped_after)
  with pool_lib.Pool(1) as pool:
    target = here.with_workers(pool)
    for limit in (2, 3):
      config = config_lib.XlaConfig(options={compiles.IN_FLIGHT: limit})
      assert target.schedule(config).is_scheduled
  assert len(answered) >= 2
  assert asked == answered


def test_a_dropped_compile_that_hangs_holds_up_no_other_of_its_program(
  here: target_lib.StepTarget,
) -> None:
  first, second = (
    config_lib.XlaConfig(options={compiles.IN_FLIGHT: n}) for n in (2, 3)
  )
  with pool_lib.Pool(1, worth_stopping_s=1.0) as pool:
    target = here.with_workers(pool)
    target.identity()  # The worker has started.
    (pid,) = pool.worker_pids
    os.kill(pid, signal.SIGSTOP)  # From here on it takes for ever.
    stopped_s = time.monotonic()
    with target.started([first]):
      while not pool.num_at_work:
        time.sleep(0.01)
    assert target.schedule(second).is_scheduled
  # Not after the five minutes that a compile is given which is waited for.
  assert time.monotonic() - stopped_s < compiles.LONGEST_S


def test_a_compile_to_the_end_gives_its_schedule_too(
  here: target_lib.StepTarget,
) -> None:
  if here.obstacle:
    pytest.skip(here.obstacle)
  with pool_lib.Pool(1) as pool:
    target = here.with_workers(pool)
    with target.compiling(config_lib.DEFAULT):
      on_the_way = target.schedule()
      target.compile()
    (pid,) = pool.worker_pids
    os.kill(pid, signal.SIGSTOP)  # Nothing is compiled any more.
    assert target.schedule().proto == on_the_way.proto
  assert compiles.text(on_the_way) == compiles.text(here.schedule())


def test_what_a_dropped_compile_would_have_shown_is_compiled_by_itself(
  here: target_lib.StepTarget,
) -> None:
  if here.obstacle:
    pytest.skip(here.obstacle)
  config = config_lib.XlaConfig(options={compiles.IN_FLIGHT: 2})
  with pool_lib.Pool(1) as pool:
    target = here.with_workers(pool)
    with target.started([config_lib.DEFAULT]), target.compiling(config):
      pass  # The one worker there is never came to it.
    assert target.schedule(config).is_scheduled


@pytest.mark.parametrize("is_default", [True, False])
def test_a_line_more_in_the_users_file_compiles_no_options_anew(
  tmp_path: pathlib.Path, is_default: bool
) -> None:
  """But the default, as reports name lines of its schedule."""
  config = config_lib.XlaConfig(
    options={} if is_default else {compiles.IN_FLIGHT: 2}
  )
  cache = _CountingCache(tmp_path)
  num_puts = []
  with pool_lib.Pool(1, cache=cache) as pool:
    for num_lines, function in ((0, "sin"), (3, "sin"), (3, "cos")):
      target = _written(num_lines, function).with_workers(pool)
      target.schedule(config)
      num_puts.append(cache.num_puts)
  if is_default:
    once = _NUM_COMPILES_OF_DEFAULT
    assert num_puts == [once, once + 1, 2 * once + 1]
  else:
    assert num_puts == [1, 1, 2]


def test_what_one_command_compiled_another_one_finds(
  h100s: Sequence[jax.Device],
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  """The default, too, which is kept with lines: ours are not among them."""
  del h100s  # Only says whether there is anything to compile with.
  folder = tmp_path / "cache"
  monkeypatch.setenv("LAGOM_XLA_CACHE", str(folder))
  step = commands.write_steps(tmp_path)
  kept = []
  for command in ("inspect", "explain"):
    outcome = commands.run(command, step, commands.CLUSTER, "--workers=1")
    assert outcome.status == 0
    kept.append(sorted(os.listdir(folder)))
  assert kept[0]
  assert kept[0] == kept[1]


def _written(num_lines: int, function: str) -> target_lib.StepTarget:
  """A step below so many lines of its file."""
  text = num_lines * "\n" + f"step = lambda x: jax.numpy.{function}(x) + 1\n"
  found: dict[str, Any] = {"jax": jax}
  exec(compile(text, "step.py", "exec"), found)
  mesh = jax.sharding.Mesh(devices_lib.devices(compiles.H100S), "x")
  sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
  argument = jax.ShapeDtypeStruct((8, 4), "float32", sharding=sharding)
  lowered = jax.jit(found["step"]).lower(argument)
  return compiles.target(lowered)
