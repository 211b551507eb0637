# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Loops, branches and calls of a module are counted as they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from hlo_sources import names
import hlo_text
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo


def _executions(module: hlo.Module) -> dict[str, int]:
  return {
    module.computations[i].name: times for i, times in module.executions.items()
  }


def _loop(
  *, start: str = "0", bound: str = "12", step: str = "1", config: str = ""
) -> hlo.Module:
  """A counting loop as JAX lowers it."""
  return hlo_text.load(
    f"""
      start = s32[] constant({start})
      x = f32[4] parameter(0)
      t = (s32[], f32[4]) tuple(start, x)
      ROOT loop = (s32[], f32[4]) while(t), condition=go_on, body=body{config}
    """,
    computations=f"""
      body {{
        t = (s32[], f32[4]) parameter(0)
        i = s32[] get-tuple-element(t), index=0
        step = s32[] constant({step})
        next = s32[] add(i, step)
        x = f32[4] get-tuple-element(t), index=1
        y = f32[4] sine(x)
        ROOT out = (s32[], f32[4]) tuple(next, y)
      }}

      go_on {{
        t = (s32[], f32[4]) parameter(0)
        i = s32[] get-tuple-element(t), index=0
        bound = s32[] constant({bound})
        ROOT less = pred[] compare(i, bound), direction=LT
      }}
    """,
  )


@pytest.mark.parametrize(
  ("loop", "trips"),
  [
    ({}, 12),
    ({"start": "5"}, 7),
    ({"step": "5"}, 3),
    ({"start": "20"}, 0),
    ({"start": "-2"}, 14),
  ],
)
def test_a_counting_loop_is_counted_without_xlas_analysis(
  loop: dict[str, str], trips: int
) -> None:
  module = _loop(**loop)
  executions = _executions(module)
  assert executions == {"main": 1, "body": trips, "go_on": trips + 1}
  assert module.loops_of_unknown_length == ()


def test_a_loop_that_counts_inside_fusions_is_counted() -> None:
  module = hlo_text.load(
    """
      zero = s32[] constant(0)
      start = s32[] copy(zero)
      x = f32[4] parameter(0)
      t = (s32[], f32[4]) tuple(start, x)
      ROOT loop = (s32[], f32[4]) while(t), condition=go_on, body=body
    """,
    computations="""
      counted {
        step = s32[] constant(2)
        i = s32[] parameter(0)
        ROOT sum = s32[] add(step, i)
      }

      compared {
        i = s32[] parameter(0)
        bound = s32[] constant(7)
        ROOT less = pred[] compare(i, bound), direction=LT
      }

      body {
        t = (s32[], f32[4]) parameter(0)
        i = s32[] get-tuple-element(t), index=0
        copied = s32[] copy(i)
        next = s32[] fusion(copied), kind=kLoop, calls=counted
        x = f32[4] get-tuple-element(t), index=1
        ROOT out = (s32[], f32[4]) tuple(next, x)
      }

      go_on {
        t = (s32[], f32[4]) parameter(0)
        i = s32[] get-tuple-element(t), index=0
        ROOT less = pred[] fusion(i), kind=kLoop, calls=compared
      }
    """,
  )
  assert _executions(module)["body"] == 4
  assert module.loops_of_unknown_length == ()


def test_known_trip_count_is_believed_and_the_condition_never_runs() -> None:
  config = r', backend_config={"known_trip_count":{"n":"3"}}'
  executions = _executions(_loop(config=config))
  assert executions == {"main": 1, "body": 3, "go_on": 0}


@pytest.mark.parametrize("step", ["0", "-1"])
def test_a_loop_that_does_not_count_up_is_reported_and_counted_once(
  step: str,
) -> None:
  module = _loop(step=step)
  assert _executions(module)["body"] == 1
  assert module.loops_of_unknown_length == ("loop",)


def test_a_loop_that_stops_by_its_data_is_reported_and_counted_once() -> None:
  def halve_below(x: jax.Array, limit: jax.Array) -> jax.Array:
    return jax.lax.while_loop(lambda v: v > limit, lambda v: v / 2, x)

  compiled = jax.jit(halve_below).lower(1.0, 1.0).compile()
  module = hlo.load(compiled)
  (loop,) = (
    i
    for c in module.computations.values()
    for i in c.instructions
    if i.opcode == "while"
  )
  assert module.trip_count(loop) == 1
  assert module.loops_of_unknown_length == (loop.name,)


@pytest.mark.parametrize("compiled", [True, False])
def test_nested_loops_multiply(compiled: bool) -> None:
  def step(x: jax.Array) -> jax.Array:
    def inner(_: int, y: jax.Array) -> jax.Array:
      return jnp.cos(y @ y)

    def outer(_: int, y: jax.Array) -> jax.Array:
      return jax.lax.fori_loop(0, 7, inner, jnp.sin(y))

    return jax.lax.fori_loop(0, 11, outer, x)

  lowered = jax.jit(step).lower(jax.ShapeDtypeStruct((64, 64), jnp.float32))
  source = lowered.compile() if compiled else lowered.as_text("hlo")
  module = hlo.load(source)
  runs_of_dot = [
    module.executions[c.id]
    for c in module.computations.values()
    if c.id in module.executions
    and any(i.opcode == "dot" for i in c.instructions)
  ]
  # XLA has counted the trips of what it compiled, and never asks a condition.
  # There the product may be a call, which runs as often.
  most = 11 * 7 if compiled else 11 * (7 + 1)
  assert max(module.executions.values()) == most
  assert module.loops_of_unknown_length == ()
  if not compiled:
    assert runs_of_dot == [11 * 7]


def test_branches_count_as_taken_and_calls_add_up() -> None:
  module = hlo_text.load(
    """
      x = f32[4] parameter(0)
      which = s32[] parameter(1)
      once = f32[4] call(x), to_apply=sine
      twice = f32[4] call(once), to_apply=sine
      ROOT out = f32[4] conditional(which, twice, x),
        branch_computations={left, right}
    """,
    computations="""
      sine {
        x = f32[4] parameter(0)
        ROOT y = f32[4] sine(x)
      }

      left {
        x = f32[4] parameter(0)
        ROOT y = f32[4] call(x), to_apply=sine
      }

      right {
        x = f32[4] parameter(0)
        ROOT y = f32[4] cosine(x)
      }
    """,
  )
  assert _executions(module) == {"main": 1, "sine": 3, "left": 1, "right": 1}


_PIPELINED_ALL_GATHER = (
  {"xla_gpu_pipeline_all_gather": "COLLECTIVE_PIPELINING_MODE_ON"}
  if jax.__version_info__ >= (0, 12)
  else {"xla_gpu_enable_pipelined_all_gather": True}
)


@pytest.mark.parametrize(
  "options",
  [
    {"xla_gpu_enable_while_loop_double_buffering": True},
    {"xla_gpu_enable_while_loop_unrolling": "WHILE_LOOP_UNROLLING_FULL_UNROLL"},
    _PIPELINED_ALL_GATHER,
    {"xla_gpu_enable_triton_gemm": False},
  ],
  ids=lambda options: next(iter(options)),
)
def test_what_xla_does_to_a_loop_keeps_its_collective_bytes(
  fsdp_scan: hlo.Module,
  fsdp_step: Callable[..., jax.stages.Lowered],
  scheduled: Callable[..., hlo.Module],
  options: dict[str, Any],
) -> None:
  changed = scheduled(fsdp_step(), **options)
  assert names(changed) != names(fsdp_scan)
  assert _collective_bytes(changed) == _collective_bytes(fsdp_scan)


def _collective_bytes(module: hlo.Module) -> dict[str, int]:
  totals: dict[str, int] = {}
  for collective in collectives.find(module):
    num_bytes = collective.operand_bytes * collective.executions
    totals[collective.kind] = totals.get(collective.kind, 0) + num_bytes
  return totals
