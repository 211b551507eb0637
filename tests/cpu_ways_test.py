# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ways of running a step on CPUs: what is proposed, compiled and foreseen."""

from __future__ import annotations

import functools
import json
import pathlib
import threading
from typing import Any

import hypothesis
from hypothesis import given
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.live import perceptrons
from benchmarks.live import products
from benchmarks.live import training
import cpu_trace
from lagom_xla import errors
from lagom_xla.live import proposals as proposals_lib
from lagom_xla.live.cpu import CpuProposer
from lagom_xla.live.cpu import compiling
from lagom_xla.live.cpu import fit
from lagom_xla.live.cpu import network
from lagom_xla.live.cpu import replay
from lagom_xla.live.cpu import trace
from lagom_xla.live.cpu import way as way_lib
from lagom_xla.live.cpu import work
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes import registry
import quick

WAYS = st.builds(
  way_lib.Way,
  group_bytes=st.none() | st.integers(0, 2**63 - 1),
  is_ordered=st.booleans(),
  strands=st.sampled_from(["none", "paired", "rotated"]),
  num_pieces=st.integers(1, 2**31 - 1),
)
SECONDS = st.floats(1e-12, 1e-6)
COSTS = st.builds(
  work.Costs,
  multiplication_s=SECONDS,
  byte_s=SECONDS,
  launch_s=SECONDS,
  array_s=SECONDS,
  network_byte_s=SECONDS,
)
NUM_LAYERS, WIDTH = 6, 32
# A kernel and a bias of each layer, and the loss, in float32.
GRADIENT_BYTES = NUM_LAYERS * 4 * (WIDTH * WIDTH + WIDTH) + 4
NUM_ARRAYS = 2 * NUM_LAYERS + 1
ORDERED = way_lib.Way(is_ordered=True)


@functools.cache
def many_gradients() -> training.Training:
  return perceptrons.build(
    jax.devices(), num_layers=NUM_LAYERS, width=WIDTH, num_rows=16
  )


@functools.cache
def chain() -> training.Training:
  return products.build(jax.devices()[:2], width=512, num_products=3)


def lowered(made: training.Training) -> jax.stages.Lowered:
  return made.step.lower(made.state, made.batches[0])


def bits(made: training.Training, step: Any) -> list[bytes]:
  state = jax.tree.map(lambda leaf: leaf.copy(), made.state)
  outputs = step(state, made.batches[0])
  return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(outputs)]


def sent(module: hlo.Module) -> list[int]:
  """Bytes of each array of a module's collectives, in their order."""
  return [b for one in collectives.find(module) for b in one.array_bytes]


def costs(**seconds: float) -> work.Costs:
  nothing = dict.fromkeys(work.Costs.__dataclass_fields__, 0.0)
  return work.Costs(**{**nothing, **seconds})


def works(module: hlo.Module, each: work.Costs) -> dict[str, work.Work]:
  """What the instructions of a module's entry do, and take, by name."""
  return {
    i.name: did
    for i in module.entry.instructions
    if (did := each.work(module, module.entry, i)) and did.seconds
  }


def proposed(
  step: jax.stages.Lowered,
  step_s: float = 1.0,
  folder: pathlib.Path | None = None,
) -> list[proposals_lib.Proposal]:
  measured = proposals_lib.Measured(
    trace_dir=folder, step_s=step_s, num_traced=0 if folder is None else 1
  )
  return list(CpuProposer().proposals(step, measured, threading.Event()))


@given(WAYS)
def test_a_payload_says_all_of_a_way(way: way_lib.Way):
  assert way_lib.from_bytes(way_lib.to_bytes(way)) == way


@hypothesis.settings(max_examples=20)
@given(WAYS, st.text(min_size=1))
def test_a_payload_with_an_unknown_key_is_refused(way: way_lib.Way, key: str):
  payload = json.loads(way_lib.to_bytes(way))
  if key in payload:
    del payload[key]
  else:
    payload[key] = 1
  with pytest.raises(errors.PlanError, match="cannot be read"):
    way_lib.from_bytes(json.dumps(payload).encode())


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"\xff", b'{"a": 1}'])
def test_what_is_no_payload_is_refused(payload: bytes):
  with pytest.raises(errors.PlanError, match="one version of lagom_xla"):
    way_lib.from_bytes(payload)


@pytest.mark.parametrize(
  "group_bytes", [0, GRADIENT_BYTES // 3, GRADIENT_BYTES]
)
def test_groups_change_no_bit(group_bytes: int):
  made = many_gradients()
  way = way_lib.Way(group_bytes=group_bytes)
  compiled = CpuProposer().compile(lowered(made), way_lib.to_bytes(way))
  arrays = sent(hlo.load(compiled))
  assert sum(arrays) == GRADIENT_BYTES
  assert bits(made, compiled) == bits(made, lowered(made).compile())
  if group_bytes:
    assert max(arrays) <= group_bytes
    assert len(arrays) == 1 or group_bytes < GRADIENT_BYTES
    assert len(arrays) < NUM_LAYERS
  else:
    assert len(arrays) == NUM_ARRAYS


def test_a_collective_behind_a_product_changes_no_bit():
  made = chain()
  compiled = CpuProposer().compile(lowered(made), way_lib.to_bytes(ORDERED))
  assert bits(made, compiled) == bits(made, lowered(made).compile())


def test_a_collective_behind_a_product_takes_as_long_as_the_longer_of_both():
  before, after = (
    compiling.schedule(lowered(chain()), way)
    for way in (way_lib.AS_XLA_DOES, ORDERED)
  )
  # Three products of 512^3, and one array, of 512^2 numbers.
  for product_s, array_s in ((1.0, 2.0), (1.0, 4.0)):
    each = costs(multiplication_s=product_s / 512**3, array_s=array_s)
    together_s, longer_s = 3 * product_s + array_s, max(3 * product_s, array_s)
    assert replay.step_s(before, each) == pytest.approx(together_s)
    assert replay.step_s(after, each) == pytest.approx(longer_s)


@given(COSTS, st.sampled_from([way_lib.AS_XLA_DOES, ORDERED]))
def test_a_step_takes_at_least_its_products_and_at_most_all_that_it_does(
  each: work.Costs, way: way_lib.Way
):
  module = _scheduled(way)
  amounts = [
    found
    for i in module.entry.instructions
    if (found := each.work(module, module.entry, i)) is not None
  ]
  on_network = sum(a.seconds for a in amounts if a.kind == "collective")
  computing = sum(a.seconds for a in amounts if a.kind != "collective")
  step_s = replay.step_s(module, each)
  assert step_s >= max(on_network, computing) * (1 - 1e-6)
  assert step_s <= (on_network + computing) * (1 + 1e-6)


@functools.cache
def _scheduled(way: way_lib.Way) -> hlo.Module:
  return compiling.schedule(lowered(chain()), way)


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
  # Products that are worth hiding the collective behind.
  as_it_is = _scheduled(way_lib.AS_XLA_DOES)
  costly = costs(multiplication_s=0.1 / 512**3, array_s=0.2)
  cpu_trace.write(tmp_path, as_it_is, [works(as_it_is, costly)])
  found = proposed(lowered(chain()), folder=tmp_path)
  ratios = [proposal.predicted_ratio or 0.0 for proposal in found]
  assert ratios == sorted(ratios)
  assert 0 < ratios[0] <= ratios[-1] < 1
  assert found[0].name == "collectives behind products"


def test_what_should_take_as_long_as_the_step_is_not_proposed(
  tmp_path: pathlib.Path,
):
  # Products that take a ten-thousandth of the collective.
  as_it_is = _scheduled(way_lib.AS_XLA_DOES)
  cheap = costs(multiplication_s=1e-5 / 512**3, array_s=0.1)
  cpu_trace.write(tmp_path, as_it_is, [works(as_it_is, cheap)])
  assert proposed(lowered(chain()), folder=tmp_path) == []


def test_the_fitted_costs_replay_the_step_in_the_time_that_it_took():
  module = _scheduled(way_lib.AS_XLA_DOES)
  (one,) = collectives.find(module)
  ran = trace.Execution(step_s=0.1, held_s={one.name: 0.02})
  fitted = fit.costs(module, ran)
  assert replay.step_s(module, fitted) == pytest.approx(0.1)
  # What the trace has not is what products take.
  assert fitted.multiplication_s == pytest.approx(0.08 / (3 * 512**3), rel=1e-3)
  assert replay.step_s(_scheduled(ORDERED), fitted) == pytest.approx(0.08)


def traced(module: hlo.Module, true: work.Costs) -> work.Costs:
  """What is fitted to a trace of a host with these costs."""
  held_s = {name: did.seconds for name, did in works(module, true).items()}
  step_s = sum(held_s.values())
  return fit.costs(module, trace.Execution(step_s=step_s, held_s=held_s))


def test_latency_and_rate_are_told_apart_by_collectives_of_several_sizes():
  step = lowered(many_gradients())
  module = compiling.schedule(step, way_lib.Way(group_bytes=0))
  true = costs(array_s=3e-4, network_byte_s=2e-8)
  fitted = traced(module, true)
  assert fitted.array_s == pytest.approx(true.array_s, rel=1e-3)
  assert fitted.network_byte_s == pytest.approx(true.network_byte_s, rel=1e-3)


@functools.cache
def all_gradients(group_bytes: int | None) -> hlo.Module:
  way = way_lib.Way(group_bytes=group_bytes)
  return compiling.schedule(lowered(many_gradients()), way)


@pytest.mark.parametrize("array_s", [2e-4, 6e-4, 2e-3])
@pytest.mark.parametrize("mbit_per_s", [100, 1000, 8000])
def test_what_one_collective_saves_is_foreseen_from_a_trace_of_one_tuple(
  array_s: float, mbit_per_s: int
):
  true = costs(array_s=array_s, network_byte_s=8 / (mbit_per_s * 1e6))
  as_it_is, together = all_gradients(None), all_gradients(GRADIENT_BYTES)
  (one,) = collectives.find(as_it_is)
  assert one.num_operands == NUM_ARRAYS
  fitted = traced(as_it_is, true)
  assert replay.step_s(as_it_is, fitted) == pytest.approx(
    replay.step_s(as_it_is, true)
  )
  ratio = replay.step_s(together, fitted) / replay.step_s(together, true)
  assert 1 / 3 < ratio < 3


@pytest.mark.parametrize("waited_s", [(0.1, 0.6, 0.9), (0.9, 0.1, 0.6)])
def test_parts_and_step_are_those_of_one_execution(
  tmp_path: pathlib.Path, waited_s: tuple[float, ...]
):
  """Products cost the same whatever the collective took in each."""
  module, product_s = _scheduled(way_lib.AS_XLA_DOES), 0.02
  cpu_trace.write(
    tmp_path,
    module,
    [
      works(module, costs(multiplication_s=product_s / 512**3, array_s=array_s))
      for array_s in waited_s
    ],
  )
  ran = trace.usual(tmp_path, module)
  (one,) = collectives.find(module)
  assert ran.held_s[one.name] == pytest.approx(0.6)
  assert ran.step_s == pytest.approx(0.6 + 3 * product_s)
  fitted = fit.costs(module, ran)
  assert fitted.multiplication_s == pytest.approx(product_s / 512**3, rel=1e-3)


def test_what_jax_traces_has_the_collective_as_a_part_of_the_step(
  tmp_path: pathlib.Path,
):
  made = many_gradients()
  step = lowered(made)
  compiled = step.compile({**quick.as_users_compile()})
  with jax.profiler.trace(tmp_path):
    for _ in range(3):
      bits(made, compiled)
  module = hlo.load(compiled)
  ran = trace.usual(tmp_path, module)
  (one,) = collectives.find(module)
  assert 0 < ran.held_s[one.name] < ran.step_s


@given(
  num_arrays=st.integers(1, 10**4),
  num_bytes=st.integers(1, 10**10),
  seconds=st.floats(1e-6, 1e4),
)
def test_a_latency_and_a_rate_that_there_are_explain_all_of_a_collective(
  num_arrays: int, num_bytes: int, seconds: float
):
  array_s, byte_s = network.split(num_arrays, num_bytes, seconds)
  assert num_arrays * array_s + num_bytes * byte_s == pytest.approx(seconds)
  least_s, most_s = (
    num_arrays * each + num_bytes * byte
    for each, byte in (
      (network.LEAST_ARRAY_S, network.LEAST_BYTE_S),
      (network.MOST_ARRAY_S, network.MOST_BYTE_S),
    )
  )
  # Quicker than any host that is known: both are so, alike.
  below = min(seconds / least_s, 1) * (1 - 1e-6)
  assert network.LEAST_ARRAY_S * below <= array_s
  assert network.LEAST_BYTE_S * below <= byte_s
  # Slower: no link is, but what waits for a core is.
  assert byte_s <= network.MOST_BYTE_S * (1 + 1e-6)
  beyond_s = max(seconds - most_s, 0) / num_arrays
  assert array_s <= (network.MOST_ARRAY_S + beyond_s) * (1 + 1e-6)


def test_a_trace_of_another_step_is_told_and_not_predicted_by(
  tmp_path: pathlib.Path,
):
  with jax.profiler.trace(tmp_path):
    jax.block_until_ready(jax.jit(jnp.sin)(1.0))
  module = _scheduled(way_lib.AS_XLA_DOES)
  with pytest.raises(errors.TraceError, match="another step than jit_"):
    trace.usual(tmp_path, module)
  with pytest.raises(errors.TraceError, match="no XSpace"):
    trace.usual(tmp_path / "empty", module)
  found = proposed(lowered(chain()), folder=tmp_path)
  assert {proposal.predicted_ratio for proposal in found} <= {None}


def test_a_step_without_collectives_has_nothing_to_tune():
  step = jax.jit(lambda x: x @ x).lower(np.ones((512, 512), np.float32))
  assert proposed(step) == []


def test_nothing_follows_once_nobody_waits():
  stop = threading.Event()
  stop.set()
  measured = proposals_lib.Measured(trace_dir=None, step_s=1.0, num_traced=0)
  step = lowered(many_gradients())
  assert not list(CpuProposer().proposals(step, measured, stop))


def test_equal_payloads_have_equal_digests_and_other_groups_another():
  proposer, step = CpuProposer(), lowered(many_gradients())
  few = way_lib.to_bytes(way_lib.Way(group_bytes=GRADIENT_BYTES))
  digests = [
    proposer.digest(proposer.compile(step, payload))
    for payload in (few, few, way_lib.to_bytes(way_lib.Way(group_bytes=0)))
  ]
  assert digests[0] == digests[1] != digests[2]


def test_donated_inputs_stay_donated_or_the_way_is_refused():
  made = many_gradients()
  jitted: Any = made.step
  step = jax.jit(jitted.__wrapped__, donate_argnums=0).lower(
    made.state, made.batches[0]
  )
  way = way_lib.to_bytes(way_lib.Way(group_bytes=0))
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


def test_a_form_that_a_step_cannot_have_is_refused():
  for way in (way_lib.Way(strands="paired"), way_lib.Way(num_pieces=2)):
    with pytest.raises(errors.ProgramError, match="leave the program"):
      compiling.compiled(lowered(chain()), way)


def test_the_user_s_own_compiles_are_left_alone():
  """Of a module with the same name as the one that is rewritten."""
  made = many_gradients()
  step = lowered(made)
  before = sent(hlo.load(step.compile()))
  CpuProposer().compile(step, way_lib.to_bytes(way_lib.Way(group_bytes=0)))
  assert sent(hlo.load(lowered(made).compile())) == before
