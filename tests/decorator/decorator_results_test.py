# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The results of a step under `lagom_xla.tune` are those of the jitted step.

The eight CPU devices stand for a node of eight H100s: schedules are those of
XLA's CPU compiler, on which GPU options do not act; all else is as on GPUs.
"""

from __future__ import annotations

import dataclasses
import html
import os
import pathlib
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest

from jitted_steps import CLUSTER
from jitted_steps import NUM_LAYERS
from jitted_steps import WIDTH
from jitted_steps import assert_identical
from jitted_steps import configs_compiled
from jitted_steps import fresh_state
from jitted_steps import fsdp_step
from jitted_steps import sharded
from jitted_steps import tune_predicted
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.tuner import tuner
from lagom_xla.tuner import tuning as tuning_lib
import python_calls
import quick

_TRAIN = pathlib.Path(__file__).parents[2] / "examples/llama/train.py"


def test_the_plan_can_be_read_from_the_step():
  step = tune_predicted(fsdp_step())
  assert list(step.tunings) == []
  step(fresh_state(), sharded(16, WIDTH))
  (tuning,) = step.tunings
  assert tuning.plan.cluster == cluster_lib.parse(CLUSTER)
  assert tuning.plan.module_name == "jit_step"
  kinds = {c.kind for c in tuning.before.analysis.collectives}
  assert "all-gather" in kinds
  assert len(tuning.candidates) > 1
  assert "tuning of jit_step for 1x8xh100: " in repr(tuning)
  assert len(repr(tuning)) < 200
  assert repr(tuning) in step.report()
  assert step._repr_html_() == f"<pre>{html.escape(step.report())}</pre>"


def test_what_runs_is_what_the_tuner_compiled(monkeypatch: pytest.MonkeyPatch):
  x = sharded(16)
  other = jax.jit(lambda x: x + 2).lower(x).compile()
  real = tuner.tune

  def tune(target: target_lib.Target, **options: Any) -> tuning_lib.Tuning:
    tuning = real(target, **options)
    assert tuning.compiled is not None
    return dataclasses.replace(
      tuning, compiled=dataclasses.replace(tuning.compiled, compiled=other)
    )

  monkeypatch.setattr(tuner, "tune", tune)
  step = tune_predicted(jax.jit(lambda x: x + 1))
  for _ in range(3):
    np.testing.assert_array_equal(step(x), x + 2)


def test_a_known_signature_runs_without_any_python():
  step = tune_predicted(fsdp_step())
  state, x = fresh_state(), sharded(16, WIDTH)
  state, _ = step(state, x)
  state, _ = step(state, x)
  assert python_calls.of(step, state, x) == []


def test_the_llama_example_trains_with_it():
  flags = ["--model=tiny", "--cpu_devices=8", "--steps=2", "--tune"]
  run = subprocess.run(
    [sys.executable, str(_TRAIN), *flags],
    env={**os.environ, "XLA_FLAGS": quick.flags()},
    capture_output=True,
    text=True,
    check=False,
  )
  assert run.returncode == 0, run.stderr
  assert "step    2  loss" in run.stdout
  assert run.stderr.count("RuntimeWarning: lagom_xla.tune") <= 1
  assert "Traceback" not in run.stderr


def test_ten_steps_give_the_same_bits_as_jit_and_donate_alike(
  tuned_names: list[str], monkeypatch: pytest.MonkeyPatch
):
  asked = configs_compiled(monkeypatch)
  jitted, tuned = fsdp_step(), tune_predicted(fsdp_step())
  ours, theirs = fresh_state(), fresh_state()
  for n in range(10):
    x = sharded(16, WIDTH, seed=100 + n)
    donated = jax.tree.leaves(ours)
    ours, our_loss = tuned(ours, x)
    theirs, their_loss = jitted(theirs, x)
    assert_identical((ours, our_loss), (theirs, their_loss))
    assert [leaf.is_deleted() for leaf in (*donated, x)] == [
      *[True] * (2 * NUM_LAYERS),
      False,
    ]
  assert tuned_names == ["step"]
  assert asked[-1] == tuned.tunings[0].plan.xla
