# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ways on CPUs as they are foreseen: replayed, and proposed by that."""

from __future__ import annotations

import logging
import pathlib
import threading

from hypothesis import given
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.live.cpu import compiling
from benchmarks.live.cpu import fit
from benchmarks.live.cpu import proposer as proposer_lib
from benchmarks.live.cpu import replay
from benchmarks.live.cpu import way as way_lib
from benchmarks.live.cpu.proposer import CpuProposer
from cpu_steps import GRADIENT_BYTES
from cpu_steps import NUM_ARRAYS
from cpu_steps import ORDERED
from cpu_steps import chain
from cpu_steps import costs
from cpu_steps import lowered
from cpu_steps import many_gradients
from cpu_steps import proposed
from cpu_steps import scheduled_chain
from cpu_steps import sent
from cpu_steps import works
import cpu_trace
from lagom_xla import errors
from lagom_xla.live import proposals as proposals_lib
from lagom_xla.passes import hlo

SECONDS = st.floats(1e-12, 1e-6)
COSTS = st.builds(
  replay.Costs,
  multiplication_s=SECONDS,
  byte_s=SECONDS,
  launch_s=SECONDS,
  array_s=SECONDS,
  network_byte_s=SECONDS,
)


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
  each: replay.Costs, way: way_lib.Way
):
  module = scheduled_chain(way)
  did = works(module, each).values()
  on_network = sum(it.seconds for it in did if it.kind == "collective")
  computing = sum(it.seconds for it in did if it.kind != "collective")
  step_s = replay.step_s(module, each)
  assert step_s >= max(on_network, computing) * (1 - 1e-6)
  assert step_s <= (on_network + computing) * (1 + 1e-6)


@given(st.lists(COSTS, max_size=3), COSTS)
def test_a_module_that_was_looked_at_once_is_replayed_at_any_costs(
  others: list[replay.Costs], each: replay.Costs
):
  module = scheduled_chain(ORDERED)
  replayed = replay.Replay(module)
  for other in others:
    replayed.step_s(other)
  assert replayed.step_s(each) == replay.step_s(module, each)


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
  as_it_is = scheduled_chain(way_lib.AS_XLA_DOES)
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
  as_it_is = scheduled_chain(way_lib.AS_XLA_DOES)
  cheap = costs(multiplication_s=1e-5 / 512**3, array_s=0.1)
  cpu_trace.write(tmp_path, as_it_is, [works(as_it_is, cheap)])
  assert proposed(lowered(chain()), folder=tmp_path) == []


def test_a_trace_of_another_step_is_told_and_not_predicted_by(
  tmp_path: pathlib.Path,
):
  with jax.profiler.trace(tmp_path):
    jax.block_until_ready(jax.jit(jnp.sin)(1.0))
  module = scheduled_chain(way_lib.AS_XLA_DOES)
  with pytest.raises(errors.TraceError, match="another step than jit_"):
    fit.usual(tmp_path, module)
  empty = tmp_path / "empty"
  empty.mkdir()
  with pytest.raises(errors.TraceError, match="no XSpace"):
    fit.usual(empty, module)
  found = proposed(lowered(chain()), folder=tmp_path)
  assert {proposal.predicted_ratio for proposal in found} == {None}


def test_the_groups_that_most_probably_gain_are_looked_at_first():
  step = lowered(many_gradients())
  ways = proposer_lib.likely_first(step, lambda: 7)
  one_group, one_by_one, *others = [way.group_bytes for way in ways]
  assert (one_group, one_by_one) == (GRADIENT_BYTES, 0)
  # The best groups in four forms, then these forms with XLA's own.
  assert others[-8:] == [7, 7, 7, 7, None, None, None, None]


def test_a_search_with_no_time_proposes_only_what_one_schedule_shows(
  caplog: pytest.LogCaptureFixture,
):
  proposer = CpuProposer()
  caplog.set_level(logging.INFO)
  assert (
    proposed(lowered(many_gradients()), proposer=proposer, search_s=0) == []
  )
  assert not proposer.has_looked_at_all
  assert "looked at 0 of" in caplog.text
  found = proposed(lowered(chain()), proposer=proposer, search_s=0)
  assert [one.name for one in found] == ["collectives behind products"]


def test_a_search_with_time_for_all_is_as_one_without_a_bound():
  proposer, step = CpuProposer(), lowered(many_gradients())
  bound = proposed(step, proposer=proposer, search_s=3600.0)
  assert proposer.has_looked_at_all
  assert bound == proposed(step)


def test_a_search_that_was_cut_short_says_so_when_it_ends():
  measured = proposals_lib.Measured(
    trace_dir=None, step_s=1.0, num_traced=0, search_s=0.0
  )
  step = lowered(many_gradients())
  with pytest.raises(StopIteration, match="might have cost too much"):
    next(CpuProposer().proposals(step, measured, threading.Event()))


def test_a_step_without_collectives_has_nothing_to_tune():
  step = jax.jit(lambda x: x @ x).lower(np.ones((512, 512), np.float32))
  assert proposed(step) == []


def test_nothing_follows_once_nobody_waits():
  stop = threading.Event()
  stop.set()
  measured = proposals_lib.Measured(trace_dir=None, step_s=1.0, num_traced=0)
  step = lowered(many_gradients())
  assert not list(CpuProposer().proposals(step, measured, stop))
