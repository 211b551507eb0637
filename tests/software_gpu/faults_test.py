# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A candidate that fails on GPUs costs a run as little as possible.

GPUs fail after a call has returned, when its donated arguments are already
gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import logging
import os
import pathlib
import time
from typing import Any
from unittest import mock
import warnings

from absl import logging as absl_logging
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fixed_proposals
import lagom_xla
from lagom_xla.compile import config as config_lib
from lagom_xla.live import gpu
from lagom_xla.live import hanging
from lagom_xla.live import loop
from lagom_xla.live import proposals as proposals_lib
from lagom_xla.live import tuned

_CACHE = "plans"
# A harmless other way to run a step: without graphs.
_PLAIN = config_lib.XlaConfig(options={"xla_gpu_enable_command_buffer": ""})
# A negative number in flight fails one of XLA's checks, which aborts.
_ABORTS = config_lib.XlaConfig(
  options={"xla_gpu_experimental_parallel_collective_overlap_limit": -1}
)
# Matmuls by cuBLAS, each with this much workspace memory.
_WITH_WORKSPACE = config_lib.XlaConfig(
  options={"xla_gpu_enable_triton_gemm": False}
)
_WORKSPACE_BYTES = 32 * 2**20


@dataclasses.dataclass(kw_only=True)
class _Proposer(fixed_proposals.Proposer):
  """Changes kernel times after the compile of a proposal.

  Calls `compiled` after the compile.
  """

  kernels: str = ""
  compiled: Callable[[], None] = lambda: None

  def __post_init__(self) -> None:
    self.has_profile_build = False

  def compile(
    self, lowered: jax.stages.Lowered, payload: bytes
  ) -> jax.stages.Compiled:
    pathlib.Path(os.environ["SOFTWARE_GPU_KERNELS"]).write_text(self.kernels)
    compiled = super().compile(lowered, payload)
    self.compiled()
    return compiled


@contextlib.contextmanager
def _proposed_by(
  proposer: _Proposer,
) -> Iterator[list[warnings.WarningMessage]]:
  """Tunes steps with this proposer, at any cost to the run."""
  pathlib.Path(os.environ["SOFTWARE_GPU_KERNELS"]).write_text("")
  with (
    mock.patch.dict(tuned.PROPOSERS, gpu=lambda *unused: proposer),
    mock.patch.object(tuned, "LIMITS", loop.Limits(overhead_steps=1e9)),
    warnings.catch_warnings(record=True) as warned,
  ):
    warnings.simplefilter("always")
    yield warned


def _one(config: config_lib.XlaConfig, **parts: Any) -> _Proposer:
  cluster = proposals_lib.of_live_gpus()
  configs = {gpu.in_words(config): config}
  return _Proposer(cluster=cluster, num_workers=0, configs=configs, **parts)


def _train(
  proposer: _Proposer,
  *,
  donates: bool = False,
) -> str:
  """Trains on one GPU until tuning ends; returns its report and warnings.

  Stops at a call without results.
  """
  jitted = jax.jit(
    lambda w, x: (jnp.tanh(w @ x), jnp.sin(x).sum()),
    donate_argnums=0 if donates else (),
  )
  with _proposed_by(proposer) as warned:
    step = lagom_xla.tune(jitted, cache=_CACHE)
    w, x = jnp.ones((256, 256)), jnp.ones((256, 256))
    report = ""
    while not any(f"now: {it}" in report for it in ("stopped", "watching")):
      w, _ = step(w, x)
      report = step.report()
    said = [report, *(str(it.message) for it in warned)]
    try:
      for _ in range(30):  # Training continues.
        w, _ = step(w, x)
      jax.block_until_ready(w)
    except Exception as error:
      said.append(f"lost: {error}")
  print(*said, sep="\n")
  return "\n".join(said)


_LOST = "failed, and its donated arguments are lost: "


def launches_fail() -> None:
  a_failed_call_is_repeated_by_jit()
  donated_arguments_are_lost_only_once()


def a_failed_call_is_repeated_by_jit() -> None:
  # A failure that loses nothing is not remembered.
  for _ in range(2):
    said = _train(_one(_PLAIN, kernels="fail fusion\n"))
    assert "1 XLA option failed: JaxRuntimeError: INTERNAL: CUDA" in said, said
    assert "unchanged" in said
    assert "lost" not in said


def donated_arguments_are_lost_only_once() -> None:
  said = _train(_one(_PLAIN, kernels="fail fusion\n"), donates=True)
  assert f"1 XLA option {_LOST}JaxRuntimeError: INTERNAL: CUDA" in said
  assert "\nlost: " in said
  again = _one(_PLAIN)
  said = _train(again, donates=True)
  assert "ended when 1 XLA option ran for the first time" in said
  assert "lost" not in said
  assert again.measured is None


def a_candidate_that_aborts_xla_is_not_run() -> None:
  said = _train(_one(_ABORTS, is_proven=False))
  assert "not measured: " in said
  assert "ended with status -6" in said
  assert "now: watch" in said


def a_candidate_never_ends() -> None:
  class Handler(logging.Handler):
    """Ends the process after the message of a hang, as a user would."""

    def emit(self, record: logging.LogRecord) -> None:
      if "and may hang" in record.getMessage():
        print(record.getMessage(), flush=True)
        while not list(pathlib.Path(_CACHE).glob("*")):
          time.sleep(0.05)  # A thread writes it.
        os._exit(0)

  absl_logging.get_absl_logger().addHandler(Handler())
  with mock.patch.object(hanging, "AFTER_S", 1.0):
    _train(_one(_PLAIN, kernels="inf fusion\n"))
  pytest.fail("It ended.")


def a_candidate_that_hung_is_not_tried_again() -> None:
  again = _one(_PLAIN)
  said = _train(again)
  assert "ended when 1 XLA option ran for the first time" in said
  assert again.measured is None


def _bytes_left() -> int:
  (device,) = jax.devices()
  stats = device.memory_stats()
  return stats["bytes_limit"] - stats["bytes_in_use"]


def a_candidate_without_enough_memory_is_not_run() -> None:
  held = []

  def take_all_but_a_little() -> None:
    while _bytes_left() > _WORKSPACE_BYTES:
      piece = np.zeros(_WORKSPACE_BYTES // 4, np.uint8)
      held.append(jax.device_put(piece).block_until_ready())

  proposer = _one(_WITH_WORKSPACE, compiled=take_all_but_a_little)
  said = _train(proposer, donates=True)
  assert "not measured: " in said
  assert "it needs 32 MiB beyond its arguments, and" in said
  assert "lost" not in said
  assert held


def test_a_failed_launch_is_repeated_by_jit_or_loses_donations_once(
  on_gpus: Callable[..., str],
) -> None:
  on_gpus(launches_fail, num_devices=1)


def test_a_candidate_that_aborts_xla_is_not_run(
  on_gpus: Callable[..., str],
) -> None:
  on_gpus(a_candidate_that_aborts_xla_is_not_run, num_devices=1)


def test_a_candidate_that_hangs_is_reported_and_not_tried_again(
  on_gpus: Callable[..., str],
) -> None:
  said = on_gpus(a_candidate_never_ends, num_devices=1)
  assert ": 1 XLA option has been running for 1 s and may hang" in said
  on_gpus(a_candidate_that_hung_is_not_tried_again, num_devices=1)


def test_a_candidate_without_enough_memory_is_not_run(
  on_gpus: Callable[..., str],
) -> None:
  on_gpus(
    a_candidate_without_enough_memory_is_not_run,
    num_devices=1,
    MEMORY_GB=0.5,
  )
