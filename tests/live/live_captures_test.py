# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Captures of a profiler's server come to what they would without tuning."""

from __future__ import annotations

import pathlib
from typing import Any

import jax
from jax._src import profiler
import jax.numpy as jnp
import pytest

import lagom_xla
from lagom_xla.jax_internals import profiler as profiler_lib
from lagom_xla.profiling import xspace
import live_step

_PROGRAM = "jit__step"


def _step(x: jax.Array) -> jax.Array:
  return jnp.tanh(x @ x)


def _capture() -> Any:
  """Begins one as `jax.profiler.start_server` does: beside `jax.profiler`."""
  return profiler._profiler.ProfilerSession(jax.profiler.ProfileOptions())


def _num_steps(folder: pathlib.Path) -> int:
  """Executions of the step that a trace holds."""
  return len(
    {
      launch.execution
      for device in xspace.read(folder).devices
      for launch in device.launches
      if launch.program_id == _PROGRAM
    }
  )


@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_capture_that_is_on_is_whole_and_tuning_predicts(
  is_noticed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
):
  if not is_noticed:  # As one that begins when tuning's trace does.
    monkeypatch.setattr(profiler_lib, "is_recording", lambda: False)
  proposer = live_step.Proposer({})
  x = jnp.full((8, 8), 0.1)
  with live_step.proposed_by(proposer):
    step = lagom_xla.tune(jax.jit(_step), cache=False)
    step(x).block_until_ready()
    capture = _capture()
    with pytest.warns(RuntimeWarning) as warned:
      num_calls = live_step.call_until(step, "now: watch", x)
    capture.stop_and_export(str(tmp_path / "capture"))
  (one,) = warned
  assert "goes on with predicted costs" in str(one.message)
  assert proposer.measured[0].trace_dir is None
  assert _num_steps(tmp_path / "capture") == num_calls
  with jax.profiler.trace(tmp_path / "own"):
    step(x).block_until_ready()
  assert _num_steps(tmp_path / "own") == 1
