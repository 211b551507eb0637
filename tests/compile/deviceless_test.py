# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA is not asked to time kernels that no GPU is there for."""

from __future__ import annotations

from collections.abc import Callable

import jax
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile.lowering import lowered_step
from lagom_xla.compile.runs import compiler
from lagom_xla.compile.runs import deviceless

_AUTOTUNER = "xla_gpu_experimental_enable_fusion_autotuner"
_IN_FLIGHT = {"xla_gpu_experimental_parallel_collective_overlap_limit": 4}


@pytest.fixture(scope="module")
def lowered(
  fsdp_step: Callable[..., jax.stages.Lowered],
) -> lowered_step.LoweredStep:
  return lowered_step.LoweredStep(fsdp_step(), cluster_lib.parse("1x8xh100"))


def test_fusions_are_not_timed_for_devices_that_are_not_here(
  lowered: lowered_step.LoweredStep,
) -> None:
  asked = deviceless.asked(lowered, _IN_FLIGHT)
  assert asked == {_AUTOTUNER: False, **_IN_FLIGHT}


def test_what_a_config_sets_has_the_last_word(
  lowered: lowered_step.LoweredStep,
) -> None:
  set_on = {_AUTOTUNER: True}
  assert deviceless.asked(lowered, set_on) == set_on


def test_beside_a_live_gpu_xla_is_asked_what_jax_would_ask(
  lowered: lowered_step.LoweredStep, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
  assert deviceless.asked(lowered, _IN_FLIGHT) == _IN_FLIGHT


def test_a_step_for_cpus_is_compiled_as_it_is() -> None:
  cluster = cluster_lib.parse("1x8xh100")
  step = jax.jit(lambda x: x + 1).lower(1.0)
  lowered = lowered_step.LoweredStep(step, cluster)
  assert deviceless.asked(lowered, {}) == {}


def test_what_runs_is_what_timing_would_have_given(
  lowered: lowered_step.LoweredStep,
) -> None:
  """Of fusions timed ahead of time XLA takes the first kernel that compiles."""

  def runs(*, timed: bool) -> list[list[str]]:
    config = config_lib.XlaConfig(options={_AUTOTUNER: timed})
    module = compiler.schedule(lowered, config)
    return [
      [f"{i.opcode} {i.fusion_kind}" for i in computation.instructions]
      for computation in module.computations.values()
    ]

  assert runs(timed=False) == runs(timed=True)
