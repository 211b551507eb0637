# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ways of running a step on CPUs: their payloads, and what they leave alone."""

from __future__ import annotations

import json
from typing import Any

import hypothesis
from hypothesis import given
from hypothesis import strategies as st
import jax
import pytest

from benchmarks.live.cpu import behind_products
from benchmarks.live.cpu import compiling
from benchmarks.live.cpu import way as way_lib
from benchmarks.live.cpu.proposer import CpuProposer
from cpu_steps import GRADIENT_BYTES
from cpu_steps import NUM_ARRAYS
from cpu_steps import NUM_LAYERS
from cpu_steps import ORDERED
from cpu_steps import bits
from cpu_steps import chain
from cpu_steps import lowered
from cpu_steps import many_gradients
from cpu_steps import proposed
from cpu_steps import sent
from lagom_xla import errors
from lagom_xla.passes import hlo
from lagom_xla.passes import registry

WAYS = st.builds(
  way_lib.Way,
  group_bytes=st.none() | st.integers(0, 2**63 - 1),
  is_ordered=st.booleans(),
  strands=st.sampled_from(["none", "paired", "rotated"]),
  num_pieces=st.integers(1, 2**31 - 1),
)


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


def test_a_step_of_small_products_has_nothing_to_put_collectives_behind():
  module = compiling.schedule(lowered(many_gradients()), way_lib.AS_XLA_DOES)
  assert behind_products.rewrite(module) is None


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
