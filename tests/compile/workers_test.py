# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles in other processes: same results, no repeats, no useless ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

import jax
from jax.experimental import custom_partitioning
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

import commands
import compiles
from lagom_xla import errors
from lagom_xla.compile import cache as cache_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import job as job_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import pool as pool_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.compile import worker as worker_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.schedule import digest
import strands_step

# A user's program that starts a pool and never ends.
_OWNER = """\
import time
from lagom_xla.compile import pool
import sys
owned = pool.Pool(1)
while not owned.worker_pids:
  time.sleep(0.01)
print(*owned.worker_pids, flush=True)
time.sleep(600)
"""


Step = target_lib.StepTarget


@pytest.fixture(scope="module")
def pool() -> Iterator[pool_lib.Pool]:
  with pool_lib.Pool(2) as pool:
    yield pool


@pytest.fixture(scope="module")
def here(fsdp_step: Callable[..., jax.stages.Lowered]) -> Step:
  return compiles.target(fsdp_step())


@pytest.fixture(scope="module")
def there(here: Step, pool: pool_lib.Pool) -> Step:
  return here.with_workers(pool)


@pytest.mark.parametrize(
  "config",
  [
    config_lib.DEFAULT,
    config_lib.XlaConfig(
      options={compiles.IN_FLIGHT: 2},
      scheduler_profile='costs { name: "fusion" }',
    ),
    config_lib.XlaConfig(combine_groups=()),
  ],
)
def test_a_schedule_is_the_same_in_a_worker(here, there, config):
  module = there.schedule(config)
  assert compiles.text(module) == compiles.text(here.schedule(config))
  is_as_by_default = compiles.text(module) == compiles.text(there.schedule())
  assert is_as_by_default == config.is_default
  if config.is_default:
    _check_same_module(here, there)


def _check_same_module(here: Step, there: Step) -> None:
  """A worker schedules an HLO module as this process does."""
  module = here.identity()
  assert compiles.text(there.identity()) == compiles.text(module)
  target = target_lib.of_module(module, compiles.H100S, name="module")
  pool = there.lowered.workers
  assert pool is not None
  scheduled = target.with_workers(pool).schedule()
  assert compiles.text(scheduled) == compiles.text(target.schedule())


def test_a_compile_to_the_end_is_the_same_in_a_worker(here, there):
  in_process = here.compile()
  with pool_lib.Pool(1, generates_code=True) as pool:
    in_worker = here.with_workers(pool).compile()
  # Without code generation, matmuls in kernels get no tiles.
  for found in (in_worker, there.compile()):
    assert _scheduled(found.module) == _scheduled(in_process.module)
    assert found.peak_bytes == in_process.peak_bytes


@pytest.mark.parametrize(
  "refused",
  [
    config_lib.XlaConfig(options={"xla_no_such_option": 1}),
    config_lib.XlaConfig(combine_groups=(("no", "such"),)),
  ],
)
def test_refusals_in_a_worker_have_the_same_error_and_message(
  here, there, refused
):
  with pytest.raises(errors.LagomError) as here_says:
    here.schedule(refused)
  with pytest.raises(type(here_says.value)) as there_says:
    there.schedule(refused)
  assert str(there_says.value) == str(here_says.value)


def test_an_abort_in_xla_is_reported_and_the_next_compile_succeeds(there):
  with pytest.raises(
    errors.CompileAbortedError,
    match=rf"{compiles.IN_FLIGHT}=-1: .*SIGABRT.*Check failed: .*overlap_limit",
  ):
    there.schedule(compiles.ABORTS)
  assert there.schedule().is_scheduled


def test_a_compile_that_hangs_is_stopped_and_reported(here):
  with (
    pool_lib.Pool(1, hang_s=1e-3) as pool,
    pytest.raises(errors.CompileAbortedError, match="did not finish within"),
  ):
    here.with_workers(pool).schedule()


def test_compiles_run_in_process_with_one_warning_if_no_worker_starts(
  here, monkeypatch
):
  monkeypatch.setattr(sys, "executable", "/no/such/python")
  warnings: list[str] = []
  with pool_lib.Pool(2, warn=warnings.append) as pool:
    target = here.with_workers(pool)
    scheduled = {compiles.text(target.schedule()) for _ in range(2)}
  assert scheduled == {compiles.text(here.schedule())}
  (warning,) = warnings
  assert "/no/such/python" in warning


def test_workers_start_even_if_sys_path_contains_a_path_object(monkeypatch):
  monkeypatch.setattr(sys, "path", [*sys.path, pathlib.Path("nowhere")])
  with pool_lib.Pool(1, num_early=0) as pool:
    assert pool.is_usable


def test_workers_have_own_groups_in_this_session_and_end_with_the_pool():
  # Linux shares CPU time evenly among sessions, whatever their niceness.
  with pool_lib.Pool(1) as pool:
    pids = _await_pids(pool)
    assert pids
    for pid in pids:
      assert _is_alive(pid)
      assert os.getsid(pid) == os.getsid(0)
      assert os.getpgid(pid) == pid
  assert not any(_is_alive(pid) for pid in pids)


def test_workers_end_if_their_parent_is_killed():
  owner = subprocess.Popen(
    [sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, text=True
  )
  with owner:
    assert owner.stdout is not None
    pids = [int(pid) for pid in owner.stdout.readline().split()]
    assert pids
    owner.send_signal(signal.SIGKILL)
  deadline = time.monotonic() + compiles.LONGEST_S
  while any(_is_alive(pid) for pid in pids) and time.monotonic() < deadline:
    time.sleep(0.01)
  assert not any(_is_alive(pid) for pid in pids)


def _scheduled(module: hlo.Module) -> list[str]:
  """The instructions that run one by one, without those inside kernels."""
  return [
    f"{instruction.name} {instruction.opcode} {instruction.shape}"
    for computation_id, computation in module.computations.items()
    if computation_id in module.executions
    for instruction in computation.instructions
    if instruction.opcode != "bitcast"
  ]


def _await_pids(pool: pool_lib.Pool) -> Sequence[int]:
  deadline = time.monotonic() + compiles.LONGEST_S
  while not pool.worker_pids and time.monotonic() < deadline:
    time.sleep(0.01)
  return pool.worker_pids


def _is_alive(pid: int) -> bool:
  """Whether a process runs; a zombie does not.

  A zombie may remain until a container's init process reaps it.
  """
  try:
    os.kill(pid, 0)
    state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
  except (ProcessLookupError, FileNotFoundError):
    return False
  return state.split()[0] != "Z"


# From JAX 0.12 on, the default is also compiled with tiles, as a check.
_NUM_COMPILES_OF_DEFAULT = 2 if jax.__version_info__ >= (0, 12) else 1


class _CountingCache(cache_lib.Cache):
  num_puts = 0

  def put(self, digest: str, result: job_lib.Result) -> None:
    super().put(digest, result)
    self.num_puts += 1


def test_started_compiles_run_once_and_are_cached(here, tmp_path):
  cache = _CountingCache(tmp_path)
  configs = [compiles.in_flight(n) for n in (2, 3, 4)]
  with pool_lib.Pool(1, cache=cache) as pool:
    target = here.with_workers(pool)
    with target.started([*configs, compiles.ABORTS]):
      for config in configs:
        assert target.schedule(config).is_scheduled
    # The second time, nothing is compiled.
    for config in configs:
      assert target.schedule(config).is_scheduled
  # One more for the fused module, from which others start.
  num_puts = len(configs) + 1
  assert cache.num_puts == num_puts
  with pool_lib.Pool(1, cache=cache) as pool:
    for config in configs:
      assert here.with_workers(pool).schedule(config).is_scheduled
  assert cache.num_puts == num_puts


def test_schedules_do_not_depend_on_the_order_of_compiles(here):
  found = []
  for limits in ((3, 4), (4, 3)):
    with pool_lib.Pool(1) as pool:
      target = here.with_workers(pool)
      schedules = {
        limit: compiles.text(target.schedule(compiles.in_flight(limit)))
        for limit in limits
      }
    found.append(schedules)
  assert found[0] == found[1]


def test_compiles_from_the_beginning_have_xlas_own_names(here):
  first, config = compiles.in_flight(3), compiles.in_flight(4)
  with pool_lib.Pool(1) as pool:
    target = here.with_workers(pool)
    target.schedule(first)  # Others may start from this.
    found = target.schedule(config)
    named = target.from_the_beginning().schedule(config)
    # Other compiles keep their result.
    assert target.schedule(config).proto == found.proto
  assert digest.of(found.proto) == digest.of(named.proto)
  assert compiles.text(named) == compiles.text(here.schedule(config))


def test_a_dropped_long_compile_is_stopped_if_another_is_waiting(here):
  first, *configs = map(compiles.in_flight, (4, 2, 3))
  with pool_lib.Pool(1, worth_stopping_s=0.0) as pool:
    target = here.with_workers(pool)
    target.schedule(first)  # All others start from this.
    (pid,) = pool.worker_pids
    _check_goes_on(pool, target, *configs)
    assert pid not in pool.worker_pids


def test_a_dropped_hanging_compile_does_not_block_its_program(here):
  with pool_lib.Pool(1, worth_stopping_s=1.0) as pool:
    target = here.with_workers(pool)
    target.identity()  # The worker has started.
    _check_goes_on(pool, target, compiles.in_flight(2), compiles.in_flight(3))


def _check_goes_on(
  pool: pool_lib.Pool,
  target: Step,
  dropped: config_lib.XlaConfig,
  wanted: config_lib.XlaConfig,
) -> None:
  """An endless compile is dropped, and does not get its five minutes."""
  _stop_worker(pool)
  stopped_s = time.monotonic()
  with target.started([dropped]):
    while not pool.num_at_work:
      time.sleep(0.01)
  assert target.schedule(wanted).is_scheduled
  assert time.monotonic() - stopped_s < compiles.LONGEST_S


def _stop_worker(pool: pool_lib.Pool) -> None:
  """Suspends the worker, so that its compiles never end."""
  (pid,) = pool.worker_pids
  os.kill(pid, signal.SIGSTOP)


def test_a_worker_stopped_while_it_answers_gets_no_further_job(
  here, monkeypatch
):
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
      assert target.schedule(compiles.in_flight(limit)).is_scheduled
  assert len(answered) >= 2
  assert asked == answered


def test_a_full_compile_also_provides_its_schedule(here):
  with pool_lib.Pool(1) as pool:
    target = here.with_workers(pool)
    with target.compiling(config_lib.DEFAULT):
      on_the_way = target.schedule()
      target.compile()
    _stop_worker(pool)
    assert target.schedule().proto == on_the_way.proto
  assert compiles.text(on_the_way) == compiles.text(here.schedule())


def test_a_schedule_is_compiled_if_its_full_compile_was_dropped(here):
  config = compiles.in_flight(2)
  with pool_lib.Pool(1) as pool:
    target = here.with_workers(pool)
    with target.started([config_lib.DEFAULT]), target.compiling(config):
      pass  # The only worker never reached it.
    assert target.schedule(config).is_scheduled


@pytest.mark.parametrize("is_default", [True, False])
def test_moved_lines_in_a_file_recompile_only_the_default_config(
  tmp_path, is_default
):
  """Reports name lines of the default's schedule."""
  config = config_lib.DEFAULT if is_default else compiles.in_flight(2)
  cache = _CountingCache(tmp_path)
  num_puts = []
  with pool_lib.Pool(1, cache=cache) as pool:
    for num_lines, function in ((0, "sin"), (3, "sin"), (3, "cos")):
      _written(num_lines, function).with_workers(pool).schedule(config)
      num_puts.append(cache.num_puts)
  once = _NUM_COMPILES_OF_DEFAULT
  expected = [once, once + 1, 2 * once + 1] if is_default else [1, 1, 2]
  assert num_puts == expected


def test_compiles_of_one_command_are_reused_by_another(
  h100s, tmp_path, monkeypatch
):
  """Also the default, which is cached with lines, but not with our own."""
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


def _written(num_lines: int, function: str) -> Step:
  """A step below this many lines of its file."""
  text = num_lines * "\n" + f"step = lambda x: jax.numpy.{function}(x) + 1\n"
  found: dict[str, Any] = {"jax": jax}
  exec(compile(text, "step.py", "exec"), found)
  rows = _rows(devices_lib.devices(compiles.H100S))
  argument = jax.ShapeDtypeStruct((8, 4), "float32", sharding=rows)
  return compiles.target(jax.jit(found["step"]).lower(argument))


def _rows(devices: Sequence[jax.Device]) -> NamedSharding:
  return NamedSharding(Mesh(np.array(devices), ("x",)), P("x"))


# A step that another process lowered.


def _sent(
  lowered: jax.stages.Lowered, folder: pathlib.Path
) -> target_lib.Target:
  lowered_lib.write_step(lowered, compiles.H100S, folder)
  return target_lib.of_sent(lowered_lib.read_step(folder))


def test_a_sent_step_is_scheduled_for_gpus_like_the_original(here, tmp_path):
  config = config_lib.XlaConfig(
    options={compiles.IN_FLIGHT: 2},
    scheduler_profile='costs { name: "fusion" }',
    combine_groups=(),
  )
  there = _sent(here.lowered.step, tmp_path)
  assert compiles.text(there.schedule(config)) == compiles.text(
    here.schedule(config)
  )
  assert compiles.text(there.identity()) == compiles.text(here.identity())


def test_a_sent_step_is_compiled_for_cpus_in_the_same_forms(tmp_path):
  jitted, args = strands_step.lowerable(jax.devices("cpu"))
  lowered = jitted.lower(*args)
  here, there = compiles.target(lowered), _sent(lowered, tmp_path)
  form = form_lib.Form(strands="merged")
  assert there.outcome(form) == here.outcome(form)
  assert there.outcome(form).actions
  config = config_lib.XlaConfig(program=form)
  ours, theirs = here.compile(config), there.compile(config)
  assert compiles.text(theirs.module) == compiles.text(ours.module)
  assert theirs.peak_bytes == ours.peak_bytes


def test_a_step_with_host_callbacks_is_not_sent(tmp_path):
  @jax.jit
  def step(x: jax.Array) -> jax.Array:
    jax.debug.print("{x}", x=x)
    return x + 1

  lowered = step.lower(jnp.zeros(8))
  with pytest.raises(errors.TargetError, match="calls back into Python"):
    lowered_lib.write_step(lowered, compiles.H100S, tmp_path)


@custom_partitioning.custom_partitioning
def _doubled(x: jax.Array) -> jax.Array:
  return x + x


def _partition(mesh: Any, args: Any, result: Any) -> Any:
  return mesh, lambda x: x + x, result.sharding, (args[0].sharding,)


_doubled.def_partition(partition=_partition, sharding_rule="i j -> i j")


def test_a_step_with_custom_partitioning_is_compiled_in_this_process(h100s):
  x = jax.ShapeDtypeStruct((512, 512), jnp.bfloat16, sharding=_rows(h100s))
  here = compiles.target(jax.jit(lambda x: jnp.sum(_doubled(x) @ x)).lower(x))
  with pool_lib.Pool(1) as pool:
    module = here.with_workers(pool).schedule()
  assert digest.of(module.proto) == digest.of(here.schedule().proto)
  assert "all-reduce" in {c.kind for c in collectives.find(module)}
