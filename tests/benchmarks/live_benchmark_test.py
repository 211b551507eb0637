# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The live loop on CPUs: cases, rows, and proposed ways for steps.

These tests measure no times and make no hosts.
"""

from __future__ import annotations

import functools
import pathlib
import threading
from typing import Any

import jax
import numpy as np
import pytest

from benchmarks.live import __main__ as command
from benchmarks.live import cases
from benchmarks.live import host
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

ADOPTED = {
  "proposal": "gradients in one group",
  "predicted_ratio": 0.5,
  "adopted": True,
}
REJECTED = {
  "proposal": "chains in 4 pieces",
  "predicted_ratio": 0.9,
  "adopted": False,
}
CASE = "many small gradients"


def found(
  *trials: dict[str, Any], chosen: tuple[float, ...] = (1.0, 1.1, 0.9)
) -> list[dict[str, Any]]:
  """The results of two hosts; the second one is twice as slow."""
  return [
    {
      "trials": list(trials),
      "num_steps": 120,
      "is_same": True,
      "load": 1.5,
      "seconds": {
        "default": [factor * x for x in (1.0, 1.1, 0.9)],
        "chosen": [factor * x for x in chosen],
      },
    }
    for factor in (1, 2)
  ]


def test_a_row_describes_the_adopted_proposal_and_the_slower_host():
  row = command.row(
    CASE, 200, found(REJECTED, ADOPTED, chosen=(0.25, 0.275, 0.225))
  )
  assert row["adopted"] == "yes"
  assert row["way"] == ADOPTED["proposal"]
  assert row["predicted_ratio"] == ADOPTED["predicted_ratio"]
  assert row["default_ms"] == pytest.approx(2000)
  for field in ("ratio", "low", "high"):
    assert row[field] == pytest.approx(0.25)
  assert (row["tried"], row["steps"]) == (2, 120)


def test_targets_need_four_faster_cases_and_no_slower_one():
  won = found(ADOPTED, chosen=(0.5, 0.55, 0.45))
  names = list(cases.CASES)
  rows = [command.row(name, 200, won) for name in names[:4]]
  # A case at another rate is still the same case.
  again = [*rows[:3], command.row(names[0], 400, won)]
  lost = command.row(names[4], 200, found(ADOPTED, chosen=(1.2, 1.32, 1.08)))

  def are_met(rows: list[dict[str, Any]]) -> list[bool]:
    return [target.is_met for target in command.table_of(rows).targets]

  assert are_met(rows) == [True, True]
  assert are_met(again) == [False, True]
  assert are_met([*rows, lost]) == [True, False]


def test_compared_steps_take_turns_at_running_first():
  made = cases.perceptrons(jax.devices()[:2], num_layers=1, width=8, num_rows=4)
  ran: list[str] = []

  def step(name: str) -> host.Step:
    def run(state: Any, batch: Any) -> Any:
      ran.append(name)
      return made.step(state, batch)

    return run

  steps = {name: step(name) for name in "ab"}
  state, seconds = host.measure(
    made, steps, made.state, num_rounds=4, num_steps=2
  )
  assert "".join(ran) == "aabbbbaaaabbbbaa"
  assert {name: len(each) for name, each in seconds.items()} == {"a": 4, "b": 4}
  assert jax.tree.structure(state) == jax.tree.structure(made.state)


# One case of each kind; the others differ in size.
@pytest.mark.parametrize(
  "name",
  [
    "one all-reduce beside products",
    "many small gradients",
    "tensor-parallel Llama",
    "slices of few tokens",
  ],
)
def test_cases_have_collectives(name: str):
  made = cases.CASES[name].build(jax.devices()[:2])
  lowered = made.step.lower(made.state, made.batches[0])
  assert collectives.find(compiling.schedule(lowered, compiling.AS_XLA_DOES))


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
def test_grouping_gradients_changes_no_bit_of_the_results(group_bytes: int):
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


def test_ordering_a_collective_after_a_product_changes_no_bit():
  made = chain()
  compiled = CpuProposer().compile(lowered(made), compiling.to_bytes(ORDERED))
  assert bits(made, compiled) == bits(made, lowered(made).compile())


def test_donated_inputs_stay_donated_or_compiling_is_refused():
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


def test_many_small_gradients_are_proposed_to_be_grouped():
  step = lowered(many_gradients())
  found = proposed(step)
  assert 1 <= len(found) <= 6
  # With no trace there is nothing to predict by.
  assert {proposal.predicted_ratio for proposal in found} == {None}
  best = CpuProposer().compile(step, found[0].payload)
  assert len(sent(hlo.load(best))) < NUM_ARRAYS


def test_proposals_are_sorted_by_gain_and_all_beat_the_step(
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


def test_a_step_without_collectives_gets_no_proposals():
  step = jax.jit(lambda x: x @ x).lower(np.ones((512, 512), np.float32))
  assert proposed(step) == []


def test_a_stopped_proposer_makes_no_proposals():
  stop = threading.Event()
  stop.set()
  measured = proposals_lib.Measured(trace_dir=None, step_s=1.0)
  step = lowered(many_gradients())
  assert not list(CpuProposer().proposals(step, measured, stop))


def test_fitted_costs_replay_the_step_in_its_measured_time():
  module = scheduled_chain(compiling.AS_XLA_DOES)
  (one,) = collectives.find(module)
  ran = fit.Execution(step_s=0.1, held_s={one.name: 0.02})
  fitted = fit.costs(module, ran)
  assert replay.step_s(module, fitted) == pytest.approx(0.1)
  # Products take the rest of the step, which the trace lacks.
  assert fitted.multiplication_s == pytest.approx(0.08 / (3 * 512**3), rel=1e-3)
  assert replay.step_s(scheduled_chain(ORDERED), fitted) == pytest.approx(0.08)
