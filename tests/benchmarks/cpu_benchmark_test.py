# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ways of running a step on CPUs: replayed, fitted, proposed and compiled."""

from __future__ import annotations

import functools
import pathlib
import threading
from typing import Any

import jax
import numpy as np
import pytest

from benchmarks.live import cases
from benchmarks.live.cpu import compiling
from benchmarks.live.cpu import fit
from benchmarks.live.cpu import replay
from benchmarks.live.cpu.proposer import CpuProposer
from lagom_xla import errors
from lagom_xla.live import proposals as proposals_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes import registry
import quick

NUM_LAYERS, WIDTH = 6, 32
# A kernel and a bias of each layer, and the loss, in float32.
GRADIENT_BYTES = NUM_LAYERS * 4 * (WIDTH * WIDTH + WIDTH) + 4
NUM_ARRAYS = 2 * NUM_LAYERS + 1
ORDERED = compiling.Way(is_ordered=True)


@functools.cache
def many_gradients() -> cases.Training:
  return cases.perceptrons(
    jax.devices(), num_layers=NUM_LAYERS, width=WIDTH, num_rows=16
  )


@functools.cache
def chain() -> cases.Training:
  return cases.products(jax.devices()[:2], width=512, num_products=3)


def lowered(made: cases.Training) -> jax.stages.Lowered:
  return made.step.lower(made.state, made.batches[0])


def bits(made: cases.Training, step: Any) -> list[bytes]:
  state = jax.tree.map(lambda leaf: leaf.copy(), made.state)
  outputs = step(state, made.batches[0])
  return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(outputs)]


def sent(module: hlo.Module) -> list[int]:
  """Bytes of each array of a module's collectives, in their order."""
  return [b for one in collectives.find(module) for b in one.array_bytes]


def proposed(
  step: jax.stages.Lowered,
  folder: pathlib.Path | None = None,
) -> list[proposals_lib.Proposal]:
  measured = proposals_lib.Measured(trace_dir=folder, step_s=1.0)
  return list(CpuProposer().proposals(step, measured, threading.Event()))


@functools.cache
def scheduled_chain(way: compiling.Way) -> hlo.Module:
  return compiling.schedule(lowered(chain()), way)


@pytest.mark.parametrize("group_bytes", [0, GRADIENT_BYTES // 3])
def test_groups_change_no_bit(group_bytes: int):
  made = many_gradients()
  way = compiling.Way(group_bytes=group_bytes)
  compiled = CpuProposer().compile(lowered(made), compiling.to_bytes(way))
  arrays = sent(hlo.load(compiled))
  assert sum(arrays) == GRADIENT_BYTES
  assert bits(made, compiled) == bits(made, lowered(made).compile())
  if group_bytes:
    assert max(arrays) <= group_bytes
    assert len(arrays) < NUM_LAYERS
  else:
    assert len(arrays) == NUM_ARRAYS


def test_a_collective_behind_a_product_changes_no_bit():
  made = chain()
  compiled = CpuProposer().compile(lowered(made), compiling.to_bytes(ORDERED))
  assert bits(made, compiled) == bits(made, lowered(made).compile())


def test_donated_inputs_stay_donated_or_the_way_is_refused():
  made = many_gradients()
  jitted: Any = made.step
  step = jax.jit(jitted.__wrapped__, donate_argnums=0).lower(
    made.state, made.batches[0]
  )
  way = compiling.to_bytes(compiling.Way(group_bytes=0))
  if not registry.keeps_donation():
    with pytest.raises(errors.DonationLostError, match="forgets"):
      CpuProposer().compile(step, way)
    with pytest.raises(errors.DonationLostError, match="forgets"):
      proposed(step)
    return
  state = jax.tree.map(lambda leaf: leaf.copy(), made.state)
  jax.block_until_ready(
    CpuProposer().compile(step, way)(state, made.batches[0])
  )
  assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))


def test_many_small_gradients_are_proposed_as_few_large_ones():
  step = lowered(many_gradients())
  found = proposed(step)
  assert 1 <= len(found) <= 6
  # With no trace there is nothing to predict by.
  assert {proposal.predicted_ratio for proposal in found} == {None}
  best = CpuProposer().compile(step, found[0].payload)
  assert len(sent(hlo.load(best))) < NUM_ARRAYS


def test_proposals_are_the_best_first_and_all_better_than_the_step(
  tmp_path: pathlib.Path,
):
  made = many_gradients()
  step = lowered(made)
  compiled = step.compile({**quick.as_users_compile()})
  with jax.profiler.trace(tmp_path):
    for _ in range(3):
      bits(made, compiled)
  module = hlo.load(compiled)
  ran = fit.usual(tmp_path, module)
  (one,) = collectives.find(module)
  assert 0 < ran.held_s[one.name] < ran.step_s
  found = proposed(step, folder=tmp_path)
  ratios = [proposal.predicted_ratio or 0.0 for proposal in found]
  assert ratios == sorted(ratios)
  assert all(0 < ratio < 1 for ratio in ratios)


def test_a_step_without_collectives_has_nothing_to_tune():
  step = jax.jit(lambda x: x @ x).lower(np.ones((512, 512), np.float32))
  assert proposed(step) == []


def test_nothing_follows_once_nobody_waits():
  stop = threading.Event()
  stop.set()
  measured = proposals_lib.Measured(trace_dir=None, step_s=1.0)
  step = lowered(many_gradients())
  assert not list(CpuProposer().proposals(step, measured, stop))


def test_the_fitted_costs_replay_the_step_in_the_time_that_it_took():
  module = scheduled_chain(compiling.AS_XLA_DOES)
  (one,) = collectives.find(module)
  ran = fit.Execution(step_s=0.1, held_s={one.name: 0.02})
  fitted = fit.costs(module, ran)
  assert replay.step_s(module, fitted) == pytest.approx(0.1)
  # What the trace has not is what products take.
  assert fitted.multiplication_s == pytest.approx(0.08 / (3 * 512**3), rel=1e-3)
  assert replay.step_s(scheduled_chain(ORDERED), fitted) == pytest.approx(0.08)
