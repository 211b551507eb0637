# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA is not asked for what only the code of kernels needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
import dataclasses

import jax
import pytest

import compiles
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import deviceless
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import pool as pool_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import options as options_lib
from lagom_xla.passes import hlo

Options = Mapping[str, bool | int | float | str]

_AUTOTUNER = "xla_gpu_experimental_enable_fusion_autotuner"
_TILING = "xla_gpu_experimental_enable_tiling_propagation"
_DISABLE = "xla_disable_hlo_passes"
_DOUBLED: Options = {
  "xla_gpu_enable_pipelined_all_gather": True,
  "xla_gpu_enable_pipelined_all_reduce": True,
  "xla_gpu_enable_while_loop_double_buffering": True,
}
_IN_FLIGHT: Options = {
  "xla_gpu_experimental_parallel_collective_overlap_limit": 4
}


@pytest.fixture(scope="module")
def lowered(
  fsdp_step: Callable[..., jax.stages.Lowered],
) -> lowered_lib.LoweredStep:
  return lowered_lib.LoweredStep(fsdp_step(), cluster_lib.parse("1x8xh100"))


@pytest.fixture(scope="module")
def pool() -> Iterator[pool_lib.Pool]:
  with pool_lib.Pool(2) as pool:
    yield pool


def _asked(
  lowered: lowered_lib.LoweredStep,
  options: Options,
  *,
  keeps_names: bool = False,
  generates_code: bool = False,
) -> Options:
  return deviceless.asked(
    lowered, options, keeps_names=keeps_names, generates_code=generates_code
  )


def test_a_schedule_is_made_without_what_only_code_needs(
  lowered: lowered_lib.LoweredStep,
) -> None:
  assert _asked(lowered, _IN_FLIGHT) == {
    _AUTOTUNER: False,
    _TILING: False,
    _DISABLE: "config-assigner",
    **_IN_FLIGHT,
  }


def test_names_stay_where_a_job_must_find_them(
  lowered: lowered_lib.LoweredStep,
) -> None:
  assert _TILING not in _asked(lowered, {}, keeps_names=True)


def test_code_is_generated_from_tiles(
  lowered: lowered_lib.LoweredStep,
) -> None:
  assert _asked(lowered, {}, generates_code=True) == {_AUTOTUNER: False}


def test_what_a_config_sets_has_the_last_word(
  lowered: lowered_lib.LoweredStep,
) -> None:
  set_on: Options = {_AUTOTUNER: True, _TILING: True, _DISABLE: "algsimp"}
  assert _asked(lowered, set_on) == {
    **set_on,
    _DISABLE: "algsimp,config-assigner",
  }


def test_what_xla_flags_set_stays(
  lowered: lowered_lib.LoweredStep, monkeypatch: pytest.MonkeyPatch
) -> None:
  flags = f"--{_TILING}=true --{_DISABLE}=algsimp"
  monkeypatch.setenv("XLA_FLAGS", flags)
  assert _asked(lowered, {}) == {_AUTOTUNER: False}


def test_beside_a_live_gpu_xla_is_asked_what_jax_would_ask(
  lowered: lowered_lib.LoweredStep, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
  assert _asked(lowered, _IN_FLIGHT) == _IN_FLIGHT


def test_a_step_for_cpus_is_compiled_as_it_is() -> None:
  cluster = cluster_lib.parse("1x8xh100")
  step = jax.jit(lambda x: x + 1).lower(1.0)
  lowered = lowered_lib.LoweredStep(step, cluster)
  assert _asked(lowered, {}) == {}


@pytest.mark.parametrize("options", [{}, _DOUBLED])
def test_the_same_is_scheduled_as_when_nothing_is_left_out(
  lowered: lowered_lib.LoweredStep,
  monkeypatch: pytest.MonkeyPatch,
  options: Options,
) -> None:
  config = config_lib.XlaConfig(options=options_lib.fit(options).options)

  def found() -> tuple[list[list[str]], float]:
    module = compiler.schedule(lowered, config)
    step = step_lib.of_module(module, lowered.cluster)
    scheduled = [
      [i.name for i in computation.instructions if i.opcode != "bitcast"]
      for computation_id, computation in module.computations.items()
      if computation_id in module.executions
    ]
    return scheduled, step.timeline(step.default).step_time_us

  ours = found()
  monkeypatch.setattr(
    deviceless, "asked", lambda lowered, options, **_: options
  )
  assert ours == found()


def test_tiles_are_propagated_where_xla_has_none_for_what_it_fuses(
  lowered: lowered_lib.LoweredStep, pool: pool_lib.Pool
) -> None:
  other = cluster_lib.parse("1x8xh200")  # The program is remembered.
  lowered = dataclasses.replace(lowered, cluster=other, workers=pool)
  asked: list[Options] = []

  def run() -> compiler.Pending[int]:
    asked.append(_asked(lowered, {}))
    return compiler.Pending(result=lambda: len(asked))

  def refused() -> hlo.Module:
    raise errors.CompileError("INTERNAL: No supported config found for HLO: %d")

  def check() -> compiler.Pending[hlo.Module]:
    return compiler.Pending(result=refused)

  result = compiler.propagated_if_refused(run, check, lowered).result()
  if jax.__version_info__ < (0, 12):
    assert result == 1  # XLA chooses no tiles before, and nobody asks.
    return
  assert result == 2
  first, second = asked
  assert first == {**second, _TILING: False}
  # From then on the program is compiled so at once.
  assert compiler.propagated_if_refused(run, check, lowered).result() == 3
  assert asked[-1] == second


def test_a_refusal_of_something_else_is_left_to_the_compile_itself(
  lowered: lowered_lib.LoweredStep, pool: pool_lib.Pool
) -> None:
  def refused() -> hlo.Module:
    raise errors.CompileError("no such option")

  found = compiler.propagated_if_refused(
    lambda: compiler.Pending(result=lambda: "scheduled"),
    lambda: compiler.Pending(result=refused),
    dataclasses.replace(lowered, workers=pool),
  )
  assert found.result() == "scheduled"
  assert _TILING in _asked(lowered, {})


def test_the_check_leaves_a_schedule_what_it_is(
  lowered: lowered_lib.LoweredStep, pool: pool_lib.Pool
) -> None:
  there = dataclasses.replace(lowered, workers=pool)
  assert compiles.text(compiler.schedule(there)) == compiles.text(
    compiler.schedule(lowered)
  )
