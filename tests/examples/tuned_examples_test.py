# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The examples train the same with and without `--tune`, on eight devices."""

from __future__ import annotations

from collections.abc import Iterator
import itertools
from typing import Any

import jax
import numpy as np
import pytest

from common import data
from common import loop
from common import step as step_lib
from common import tuning
from gpt import train as gpt
import lagom_xla
import live_step
from mlp import train as mlp
from moe import train as moe

_NUM_STEPS = 20
# An upper bound; the baseline and the trace take many more steps.
_MOST_STEPS = 5_000
_DEVICES = 8
# Less than an untrained model's loss, log(256) = 5.5 nats per byte.
_CHANCE = 5


def _batches(like: dict[str, Any]) -> Iterator[dict[str, jax.Array]]:
  batch_size, seq_len = like["inputs"].shape
  for batch in data.byte_batches(
    data.TEXT.read_bytes(), batch_size=batch_size, seq_len=seq_len
  ):
    yield data.placed(batch, like["inputs"].sharding)


def _mlp_losses(*, tune: bool) -> tuple[Iterator[float], Any]:
  step, (like, batch_like) = mlp.train_step(
    jax.devices()[:_DEVICES], model="tiny", batch_size=16
  )
  step = tuning.tuned(step, tune=tune)

  def losses() -> Iterator[float]:
    state = mlp.init(like, model="tiny")
    for batch in _batches(batch_like):
      state, loss = step(state, batch)
      yield float(loss)

  return losses(), step


def _gpt_losses(*, tune: bool) -> tuple[Iterator[float], Any]:
  step, (model_like, optimizer_like, batch_like) = gpt.train_step(
    jax.devices()[:_DEVICES], model="tiny", batch_size=8
  )
  step = tuning.tuned(step, tune=tune)
  modules = gpt.init(
    (model_like, optimizer_like), model="tiny", learning_rate=3e-3, seed=0
  )
  batches = _batches(batch_like)
  return (float(step(*modules, batch)) for batch in batches), step


def _until_searched(
  losses: Iterator[float], proposer: live_step.Proposer
) -> list[float]:
  """Trains for some steps, and then until a search has the profile."""
  losses = itertools.islice(losses, _MOST_STEPS)
  trained = list(itertools.islice(losses, _NUM_STEPS))
  while not proposer.measured:
    trained.append(next(losses))
  return trained


@pytest.fixture(autouse=True)
def proposer() -> Iterator[live_step.Proposer]:
  """Proposes nothing, so that all results have the same bits."""
  proposer = live_step.Proposer({})
  with live_step.proposed_by(proposer):
    yield proposer


def test_a_tuned_perceptron_has_the_same_losses_as_the_untuned_one(proposer):
  to_come, step = _mlp_losses(tune=True)
  tuned = _until_searched(to_come, proposer)
  to_come, _ = _mlp_losses(tune=False)
  plain = list(itertools.islice(to_come, len(tuned)))
  np.testing.assert_array_equal(tuned, plain)
  assert tuned[0] > _CHANCE and tuned[-1] < tuned[0]
  assert "ms per step" in step.report()


def test_a_tuned_nnx_model_learns_and_is_profiled_once(proposer):
  to_come, step = _gpt_losses(tune=True)
  losses = _until_searched(to_come, proposer)
  assert losses[0] > _CHANCE and losses[_NUM_STEPS - 1] < 4
  assert len(proposer.measured) == 1
  assert "ms per step" in step.report()


def test_a_tuned_mixture_of_experts_learns_and_is_profiled_once(proposer):
  step, (state, batch) = moe.train_step(
    jax.devices()[:_DEVICES], model="tiny", batch_size=8, seq_len=16
  )
  step = tuning.tuned(step, tune=True)
  metrics = loop.train(
    step,
    step_lib.init_state(moe.model_of, state, model="tiny"),
    data.byte_batches(data.TEXT.read_bytes(), batch_size=8, seq_len=16),
    place=batch["inputs"].sharding,
    num_steps=_MOST_STEPS,
  )
  losses = _until_searched((values["loss"] for values in metrics), proposer)
  assert losses[-1] < losses[0]
  assert len(proposer.measured) == 1
  assert "ms per step" in step.report()


def test_a_step_without_the_tune_flag_is_unchanged():
  step, _ = mlp.train_step(jax.devices()[:_DEVICES], model="tiny")
  assert tuning.tuned(step, tune=False) is step
  assert type(tuning.tuned(step, tune=True)) is not type(step)
  assert "nothing measured" in lagom_xla.tune(step).report()
