# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Costs of CPUs, fitted to a trace of a step."""

from __future__ import annotations

import functools
import pathlib

from hypothesis import given
from hypothesis import strategies as st
import jax
import pytest

from benchmarks.live.cpu import compiling
from benchmarks.live.cpu import fit
from benchmarks.live.cpu import replay
from benchmarks.live.cpu import way as way_lib
from cpu_steps import GRADIENT_BYTES
from cpu_steps import NUM_ARRAYS
from cpu_steps import ORDERED
from cpu_steps import bits
from cpu_steps import costs
from cpu_steps import lowered
from cpu_steps import many_gradients
from cpu_steps import scheduled_chain
from cpu_steps import works
import cpu_trace
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
import quick


def test_the_fitted_costs_replay_the_step_in_the_time_that_it_took():
  module = scheduled_chain(way_lib.AS_XLA_DOES)
  (one,) = collectives.find(module)
  ran = fit.Execution(step_s=0.1, held_s={one.name: 0.02})
  fitted = fit.costs(module, ran)
  assert replay.step_s(module, fitted) == pytest.approx(0.1)
  # What the trace has not is what products take.
  assert fitted.multiplication_s == pytest.approx(0.08 / (3 * 512**3), rel=1e-3)
  assert replay.step_s(scheduled_chain(ORDERED), fitted) == pytest.approx(0.08)


def traced(module: hlo.Module, true: replay.Costs) -> replay.Costs:
  """What is fitted to a trace of a host with these costs."""
  held_s = {name: did.seconds for name, did in works(module, true).items()}
  step_s = sum(held_s.values())
  return fit.costs(module, fit.Execution(step_s=step_s, held_s=held_s))


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
  module, product_s = scheduled_chain(way_lib.AS_XLA_DOES), 0.02
  cpu_trace.write(
    tmp_path,
    module,
    [
      works(module, costs(multiplication_s=product_s / 512**3, array_s=array_s))
      for array_s in waited_s
    ],
  )
  ran = fit.usual(tmp_path, module)
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
  ran = fit.usual(tmp_path, module)
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
  array_s, byte_s = fit.split(num_arrays, num_bytes, seconds)
  assert num_arrays * array_s + num_bytes * byte_s == pytest.approx(seconds)
  least_s, most_s = (
    num_arrays * each + num_bytes * byte
    for each, byte in (
      (fit.LEAST_ARRAY_S, fit.LEAST_BYTE_S),
      (fit.MOST_ARRAY_S, fit.MOST_BYTE_S),
    )
  )
  # Quicker than any host that is known: both are so, alike.
  below = min(seconds / least_s, 1) * (1 - 1e-6)
  assert fit.LEAST_ARRAY_S * below <= array_s
  assert fit.LEAST_BYTE_S * below <= byte_s
  # Slower: no link is, but what waits for a core is.
  assert byte_s <= fit.MOST_BYTE_S * (1 + 1e-6)
  beyond_s = max(seconds - most_s, 0) / num_arrays
  assert array_s <= (fit.MOST_ARRAY_S + beyond_s) * (1 + 1e-6)
