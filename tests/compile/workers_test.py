# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Workers: compiles in other processes, which may end there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
import functools
import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
import pytest

import compiles
from lagom_xla import errors
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import pool as pool_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import digest
from lagom_xla.search import nccl
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation

# Reads like the program of a user who starts a pool, and never ends.
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
_FINGERPRINT = "fingerprint_before_lhs"
_UNSET = ("0", False, [], "DEVICE_TYPE_INVALID")


@pytest.fixture(scope="module")
def pool() -> Iterator[pool_lib.Pool]:
  with pool_lib.Pool(2) as pool:
    yield pool


@pytest.fixture(scope="module")
def here(
  fsdp_step: Callable[..., jax.stages.Lowered],
) -> target_lib.StepTarget:
  return compiles.target(fsdp_step())


@pytest.fixture(scope="module")
def there(
  here: target_lib.StepTarget, pool: pool_lib.Pool
) -> target_lib.StepTarget:
  return here.with_workers(pool)


def test_a_schedule_is_the_same_in_a_worker(
  here: target_lib.StepTarget, there: target_lib.StepTarget
) -> None:
  config = config_lib.XlaConfig(
    options={compiles.IN_FLIGHT: 2},
    scheduler_profile='costs { name: "fusion" }',
  )
  for one in (config_lib.DEFAULT, config):
    assert compiles.text(there.schedule(one)) == compiles.text(
      here.schedule(one)
    )
  assert compiles.text(there.schedule()) != compiles.text(
    there.schedule(config)
  )
  assert compiles.text(there.identity()) == compiles.text(here.identity())


def test_a_compile_to_the_end_is_the_same_in_a_worker(
  here: target_lib.StepTarget, there: target_lib.StepTarget
) -> None:
  if here.obstacle:
    pytest.skip(here.obstacle)
  in_process = here.compile()
  with pool_lib.Pool(1, generates_code=True) as pool:
    in_worker = here.with_workers(pool).compile()
  assert _as_run(in_worker.module) == _as_run(in_process.module)
  assert in_worker.peak_bytes == in_process.peak_bytes
  # Without code nobody asks which tiles a product has.
  codeless = there.compile()
  assert _scheduled(codeless.module) == _scheduled(in_process.module)
  assert codeless.peak_bytes == in_process.peak_bytes


def test_a_module_is_compiled_in_a_worker_as_here(
  here: target_lib.StepTarget, pool: pool_lib.Pool
) -> None:
  module = compiler.before_combining(here.lowered)
  target = target_lib.of_module(module, compiles.H100S, name="module")
  scheduled = target.with_workers(pool).schedule()
  assert compiles.text(scheduled) == compiles.text(target.schedule())


def test_combine_groups_act_or_are_refused_in_a_worker_as_here(
  here: target_lib.StepTarget, there: target_lib.StepTarget
) -> None:
  alone = config_lib.XlaConfig(combine_groups=())
  assert compiles.text(there.schedule(alone)) == compiles.text(
    here.schedule(alone)
  )
  unknown = config_lib.XlaConfig(combine_groups=(("no", "such"),))
  with pytest.raises(errors.CombineError) as here_says:
    here.schedule(unknown)
  with pytest.raises(errors.CombineError) as there_says:
    there.schedule(unknown)
  assert str(there_says.value) == str(here_says.value)


def test_what_xla_refuses_it_refuses_in_the_same_words(
  here: target_lib.StepTarget, there: target_lib.StepTarget
) -> None:
  unknown = config_lib.XlaConfig(options={"xla_no_such_option": 1})
  with pytest.raises(errors.CompileError) as here_says:
    here.schedule(unknown)
  with pytest.raises(errors.CompileError) as there_says:
    there.schedule(unknown)
  assert str(there_says.value) == str(here_says.value)


def test_an_abort_in_xla_is_named_and_the_next_compile_goes_on(
  there: target_lib.StepTarget,
) -> None:
  with pytest.raises(
    errors.CompileAbortedError,
    match=rf"{compiles.IN_FLIGHT}=-1: .*SIGABRT.*Check failed: .*overlap_limit",
  ):
    there.schedule(compiles.ABORTS)
  assert there.schedule().is_scheduled


def test_a_candidate_that_aborts_xla_is_refused_and_the_search_goes_on(
  there: target_lib.StepTarget,
) -> None:
  evaluate = functools.partial(
    evaluation.evaluate, target=there, searcher=nccl.by_name("lagom")
  )
  refused = evaluate(compiles.ABORTS)
  assert isinstance(refused, candidates.Refused)
  assert "Check failed" in refused.reason
  assert isinstance(evaluate(config_lib.DEFAULT), candidates.Candidate)


def test_a_compile_that_hangs_is_ended_and_named(
  here: target_lib.StepTarget,
) -> None:
  with (
    pool_lib.Pool(1, hang_s=1e-3) as pool,
    pytest.raises(errors.CompileAbortedError, match="did not finish within"),
  ):
    here.with_workers(pool).schedule()


def test_without_workers_it_is_compiled_here_with_one_warning(
  here: target_lib.StepTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.setattr(sys, "executable", "/no/such/python")
  warnings: list[str] = []
  with pool_lib.Pool(2, warn=warnings.append) as pool:
    target = here.with_workers(pool)
    scheduled = {compiles.text(target.schedule()) for _ in range(2)}
  assert scheduled == {compiles.text(here.schedule())}
  (warning,) = warnings
  assert "/no/such/python" in warning


def test_workers_start_though_a_program_has_put_a_path_in_sys_path(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.setattr(sys, "path", [*sys.path, pathlib.Path("nowhere")])
  with pool_lib.Pool(1, num_early=0) as pool:
    assert pool.is_usable


def test_a_closed_pool_leaves_no_process() -> None:
  with pool_lib.Pool(1) as pool:
    pids = _await_pids(pool)
    assert all(_is_alive(pid) for pid in pids)
  assert not any(_is_alive(pid) for pid in pids)


def test_workers_have_their_own_group_in_the_session_where_niceness_counts(
  pool: pool_lib.Pool,
) -> None:
  # Linux weighs sessions alike, however nice what runs in each of them is.
  for pid in _await_pids(pool):
    assert os.getsid(pid) == os.getsid(0)
    assert os.getpgid(pid) == pid


def test_workers_end_with_a_parent_that_is_killed() -> None:
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
  """The instructions that run one by one, but for what is inside kernels."""
  by_itself = digest.running_computations(module.proto)
  return [
    f"{instruction.name} {instruction.opcode} {instruction.shape}"
    for computation in module.proto.computations
    if computation.id in by_itself
    for instruction in digest.in_order(module.proto, computation)
    if instruction.opcode != "bitcast"
  ]


def _as_run(module: hlo.Module) -> str:
  """All of a module that acts when it runs.

  A worker asks for estimates, which are in the hash of what XLA schedules; and
  a config made for one is left with nothing set, which is as good as none.
  """
  proto = hlo.hlo_pb2.HloModuleProto()
  proto.CopyFrom(module.proto)
  proto.frontend_attributes.map.pop(_FINGERPRINT)
  for computation in proto.computations:
    for instruction in computation.instructions:
      config = module.backend_config(instruction)
      if all(value in _UNSET for value in config.values()):
        instruction.ClearField("backend_config")
  return compiles.text(hlo.Module(proto))


def _await_pids(pool: pool_lib.Pool) -> Sequence[int]:
  deadline = time.monotonic() + compiles.LONGEST_S
  while not pool.worker_pids and time.monotonic() < deadline:
    time.sleep(0.01)
  return pool.worker_pids


def _is_alive(pid: int) -> bool:
  """Whether a process runs; one that has ended and is not waited for does not.

  It may be waited for by nobody here: by the init process of a container.
  """
  try:
    os.kill(pid, 0)
    state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
  except (ProcessLookupError, FileNotFoundError):
    return False
  return state.split()[0] != "Z"
