# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Independent loops of a program become one, and compute the same bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import functools
import re
from typing import Any

import hypothesis
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
from jaxlib.mlir import ir
import numpy as np
import pytest

from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program import mlir
from lagom_xla.passes.program import rewrite
from lagom_xla.passes.program.form import Form
import rewritten

MERGED = Form(strands="merged")
STAGGERED = Form(strands="staggered")

_WIDTH = 4
_WEIGHTS = jnp.asarray(
  np.random.default_rng(0).normal(size=(3, _WIDTH, _WIDTH)), jnp.float32
)
_ROWS = jnp.asarray(
  np.random.default_rng(1).normal(size=(2, 8, _WIDTH)), jnp.float32
)


def _layer(x: jax.Array, weight: jax.Array) -> tuple[jax.Array, None]:
  return jnp.tanh(x @ weight), None


def _forward(x: jax.Array, weights: jax.Array) -> jax.Array:
  return jax.lax.scan(_layer, x, weights)[0]


def _loss(weights: jax.Array, rows: jax.Array) -> jax.Array:
  remat = jax.checkpoint(_layer)
  return jnp.mean(jax.lax.scan(remat, rows, weights)[0] ** 2)


def _two_micro_batches(weights: jax.Array, rows: jax.Array) -> jax.Array:
  gradient = jax.grad(_loss)
  return gradient(weights, rows[0]) + gradient(weights, rows[1])


def _module(function: Callable[..., Any], *args: Any) -> ir.Module:
  module: Any = jax.jit(function).lower(*args).compiler_ir("stablehlo")
  return module


def _while_loops(module: ir.Module) -> list[ir.Operation]:
  return [
    inner
    for inner in mlir.inner_operations(module.operation)
    if inner.name == "stablehlo.while"
  ]


def _num_loops(function: Callable[..., Any], form: Form, *args: Any) -> int:
  return len(_while_loops(rewrite.rewrite(_module(function, *args), form)[0]))


class TestPairs:
  @pytest.mark.parametrize(("form", "num"), [(MERGED, 2), (STAGGERED, 3)])
  def test_passes_of_two_micro_batches_share_loops(self, form, num):
    args = (_WEIGHTS, _ROWS)
    assert len(_while_loops(_module(_two_micro_batches, *args))) == 4
    assert _num_loops(_two_micro_batches, form, *args) == num
    assert rewritten.assert_same_bits(_two_micro_batches, form, *args).actions

  def test_loops_merge_that_an_outer_loop_runs(self):
    def step(weights: jax.Array, rows: jax.Array) -> jax.Array:
      def twice(total: jax.Array, _: None) -> tuple[jax.Array, None]:
        return total + _two_micro_batches(weights + total, rows), None

      return jax.lax.scan(twice, jnp.zeros_like(weights), None, length=3)[0]

    rewritten.assert_same_bits(step, MERGED, _WEIGHTS, _ROWS)
    assert _num_loops(step, MERGED, _WEIGHTS, _ROWS) == 3

  def test_what_both_loops_only_read_is_carried_once(self):
    def both(weights: jax.Array, rows: jax.Array) -> jax.Array:
      return _forward(rows[0], weights) + _forward(rows[1], weights)

    before = _while_loops(_module(both, _WEIGHTS, _ROWS))
    module, _ = rewrite.rewrite(_module(both, _WEIGHTS, _ROWS), MERGED)
    (merged,) = _while_loops(module)
    # Each carries its rows, the weights and a counter.
    assert [len(loop.operands) for loop in before] == [3, 3]
    assert len(merged.operands) == 4

  def test_a_loop_in_a_function_called_twice_merges_with_itself(self):
    called = jax.jit(_forward)

    def both(weights: jax.Array, rows: jax.Array) -> jax.Array:
      return called(rows[0], weights) + called(rows[1], weights)

    rewritten.assert_same_bits(both, MERGED, _WEIGHTS, _ROWS)
    assert _num_loops(both, MERGED, _WEIGHTS, _ROWS) == 1


def _chained(weights: jax.Array, rows: jax.Array) -> jax.Array:
  return _forward(_forward(rows[0], weights), weights)


def _unequal(weights: jax.Array, rows: jax.Array) -> jax.Array:
  return _forward(rows[0], weights) + _forward(rows[1], weights[:2])


def _until(weights: jax.Array, rows: jax.Array) -> jax.Array:
  def grow(x: jax.Array) -> jax.Array:
    return jax.lax.while_loop(
      lambda x: jnp.sum(x) < 9, lambda x: jnp.abs(x @ weights[0]) + 1, x
    )

  return grow(rows[0]) + grow(rows[1])


def _told(weights: jax.Array, rows: jax.Array, *, ordered: bool) -> jax.Array:
  """Two loops with callbacks, which a token puts in order if they have one."""

  def told(x: jax.Array, weight: jax.Array) -> tuple[jax.Array, None]:
    jax.debug.callback(lambda _: None, x[0, 0], ordered=ordered)
    return _layer(x, weight)

  first = jax.lax.scan(told, rows[0], weights)[0]
  return first + jax.lax.scan(told, rows[1], weights)[0]


def _without_products(weights: jax.Array, rows: jax.Array) -> jax.Array:
  def add(x: jax.Array, weight: jax.Array) -> tuple[jax.Array, None]:
    return x + weight[0], None

  first = jax.lax.scan(add, rows[0], weights)[0]
  return first + jax.lax.scan(add, rows[1], weights)[0]


def _alone(weights: jax.Array, rows: jax.Array) -> jax.Array:
  return _forward(rows[0], weights)


@pytest.mark.parametrize(
  ("function", "reason"),
  [
    (_chained, "needs what the other"),
    (_unequal, "they make 3 and 2 trips"),
    (_until, "no counter with a constant"),
    (functools.partial(_told, ordered=False), "host callback"),
    (functools.partial(_told, ordered=True), "one needs what|host callback"),
    (_without_products, "it has no loop with products"),
    (_alone, "no other loop"),
  ],
)
def test_what_cannot_merge_stays_and_says_why(function, reason):
  module = _module(function, _WEIGHTS, _ROWS)
  text = str(module)
  same, outcome = rewrite.rewrite(module, MERGED)
  assert same is module and str(module) == text
  assert not outcome.actions
  assert re.search(reason, " ".join(r.reason for r in outcome.refusals))


@pytest.mark.parametrize(
  ("start", "limit", "step"), [(0, 7, 1), (-3, 4, 2), (5, 5, 1), (6, 5, 3)]
)
def test_a_counted_loop_makes_as_many_trips_as_it_says(start, limit, step):
  def count() -> jax.Array:
    return jax.lax.while_loop(
      lambda i: i < limit, lambda i: i + step, jnp.int32(start)
    )

  (loop,) = _while_loops(_module(count))
  read = counted_loops.read(loop)
  assert isinstance(read, counted_loops.CountedLoop)
  assert int(jax.jit(count)()) == start + read.num_trips * step


def test_loops_that_an_earlier_merge_put_in_another_order_can_merge():
  """The last one needs the third, which so comes to stand before the second."""

  def large(x: jax.Array, weight: jax.Array) -> tuple[jax.Array, None]:
    return jnp.tanh(x @ weight @ weight), None

  def small(x: jax.Array, weight: jax.Array) -> tuple[jax.Array, None]:
    return jnp.tanh(x @ weight), None

  def program(weights: jax.Array, rows: jax.Array) -> Any:
    first, _ = jax.lax.scan(large, rows[0], weights)
    second, _ = jax.lax.scan(small, rows[1], weights)
    third, _ = jax.lax.scan(small, rows[0] + 1, weights)
    last, _ = jax.lax.scan(large, third / 2, weights)
    return first, second, last

  outcome = rewritten.assert_same_bits(program, MERGED, _WEIGHTS, _ROWS)
  assert len(outcome.actions) == 2


_Body = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


def _with_captured(x: jax.Array, weight: jax.Array) -> Any:
  captured = jnp.arange(_WIDTH, dtype=jnp.float32)
  return jnp.tanh(x @ weight + captured), jnp.sum(x)


def _with_condition(x: jax.Array, weight: jax.Array) -> Any:
  product = x @ weight
  return jax.lax.cond(
    jnp.sum(x) > 0, lambda y: jnp.sin(y), lambda y: y * 0.5, product
  ), x[0, 0]


def _with_loop(x: jax.Array, weight: jax.Array) -> Any:
  def inner(_: int, y: jax.Array) -> jax.Array:
    return jnp.tanh(y @ weight)

  return jax.lax.fori_loop(0, 2, inner, x), jnp.max(x)


@jax.jit
def _with_call(x: jax.Array, weight: jax.Array) -> Any:
  return jax.nn.relu(x) @ weight, x[1, 1]


_BODIES: Sequence[_Body] = (
  _with_captured,
  _with_condition,
  _with_loop,
  _with_call,
)


@st.composite
def _programs(draw: st.DrawFn) -> Callable[..., Any]:
  """Loops of several bodies and lengths, each fed by some value before it."""
  loops = draw(
    st.lists(
      st.tuples(
        st.sampled_from(_BODIES),
        st.integers(2, 3),  # Trips.
        st.integers(0, 10),  # Which value before it is carried.
        st.booleans(),  # Whether the last trip comes first.
        st.booleans(),  # Whether another value is added in each trip.
      ),
      min_size=2,
      max_size=4,
    )
  )

  def program(weights: jax.Array, rows: jax.Array) -> Any:
    values = [rows[0], rows[1]]
    for body, num_trips, fed_by, reverse, adds in loops:
      x = values[fed_by % len(values)]
      added = values[(fed_by + 1) % len(values)] if adds else 0.0

      def trip(x: jax.Array, w: jax.Array, body: _Body, added: Any) -> Any:
        return body(x + added, w)

      last, outputs = jax.lax.scan(
        functools.partial(trip, body=body, added=added),
        x,
        weights[:num_trips],
        reverse=reverse,
      )
      # Operations between loops, which may have to move.
      values.append(last + jnp.sum(outputs) / 7)
    return values

  return program


@hypothesis.given(
  program=_programs(), form=st.sampled_from([MERGED, STAGGERED])
)
@hypothesis.settings(max_examples=6)
def test_random_programs_of_loops_keep_their_bits(program, form):
  rewritten.assert_same_bits(program, form, _WEIGHTS, _ROWS)
