# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The memory that a schedule is said to need is what XLA assigns to it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import compiler
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import aliasing
from lagom_xla.passes.schedule import memory

_WIDTH = 1024
_STARTS = """begin = ((f32[100]), f32[100]) async-start(large), calls={calls}
  sums = f32[100] async-done(begin)"""


def _forward(w: jax.Array, x: jax.Array) -> jax.Array:
  return jnp.tanh(jnp.tanh(x @ w) @ w) @ w


def _momentum(state: Any, x: jax.Array) -> Any:
  w, m, v = state
  g = jax.grad(lambda w: jnp.mean(_forward(w, x) ** 2))(w)
  m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
  return w - 0.1 * m / (jnp.sqrt(v) + 1e-8), m, v


def _estimated(module: hlo.Module) -> int:
  return memory.peak_bytes(module, aliasing.of(module))


@pytest.mark.parametrize(
  ("step", "num_states", "rows", "donated"),
  [
    (_forward, 1, 65536, ()),
    (_momentum, 3, 4096, 0),
  ],
)
def test_a_step_needs_what_xla_says(h100s, step, num_states, rows, donated):
  mesh = Mesh(np.array(h100s), ("x",))

  def array(rows: int, *axes: str) -> jax.ShapeDtypeStruct:
    sharding = NamedSharding(mesh, P(*axes))
    return jax.ShapeDtypeStruct((rows, _WIDTH), jnp.float32, sharding=sharding)

  states = (array(_WIDTH),) * num_states
  lowered = jax.jit(step, donate_argnums=donated).lower(
    states if num_states > 1 else states[0], array(rows, "x")
  )
  cluster = cluster_lib.parse("1x8xh100")
  compiled = compiler.compile(lowered_lib.LoweredStep(lowered, cluster))
  assert _estimated(compiled.module) == pytest.approx(
    compiled.peak_bytes, rel=0.01
  )


@pytest.mark.parametrize(
  ("result", "expected"),
  [
    ("f32[100] broadcast(c), dimensions={}", (8 + 8 + 100) + 8),
    # Too small for `large`, and so is `d`.
    ("f32[99] broadcast(c), dimensions={}", (8 + 8 + 99) + 100 + 8),
    # Written while `large` is read: only `c` is in it.
    ("f32[100] negate(large)", (8 + 8 + 100) + 100),
  ],
)
def test_results_hold_what_fits_before_they_are_written(result, expected):
  module = hlo_text.load(
    f"""
  a = f32[8] parameter(0)
  large = f32[100] broadcast(a), dimensions={{}}
  c = f32[8] slice(large), slice={{[0:8]}}
  d = f32[8] negate(c)
  r = {result}
  ROOT t = ({result.split()[0]}, f32[8]) tuple(r, d)""",
    header="is_scheduled=true",
  )
  assert _estimated(module) == 4 * expected


@pytest.mark.parametrize(
  ("sums", "expected"),
  [
    ("sums = f32[100] all-reduce(large), to_apply=add", 100),
    ("sums = f32[100] fusion(large), kind=kCustom, calls=kernel", 100 + 100),
    (_STARTS.format(calls="plain"), 100),
    (_STARTS.format(calls="wrapped"), 100 + 100),
  ],
)
def test_a_collective_that_is_a_fusion_writes_to_a_buffer_of_its_own(
  sums, expected
):
  module = hlo_text.load(
    f"""
  a = f32[8] parameter(0)
  large = f32[100] broadcast(a), dimensions={{}}
  {sums}
  r = f32[8] slice(sums), slice={{[0:8]}}
  ROOT t = (f32[8]) tuple(r)""",
    computations="".join(
      f"{name} {{\n p = f32[100] parameter(0)\n ROOT s = f32[100] {root} }}\n"
      for name, root in (
        ("kernel", "all-reduce(p), to_apply=add"),
        ("plain", "all-reduce(p), to_apply=add"),
        ("wrapped", "fusion(p), kind=kCustom, calls=kernel"),
      )
    ),
    header="is_scheduled=true",
  )
  assert _estimated(module) == 4 * (8 + 8 + expected)


def test_arguments_that_one_kernel_updates_are_each_held():
  module = hlo_text.load(
    """
  a = f32[4,100] parameter(0)
  b = f32[4,100] parameter(1)
  new = f32[1,100] parameter(2)
  both = (f32[4,100], f32[4,100]) fusion(a, b, new), kind=kLoop, calls=update
  a.1 = f32[4,100] get-tuple-element(both), index=0
  b.1 = f32[4,100] get-tuple-element(both), index=1
  ROOT t = (f32[4,100], f32[4,100]) tuple(a.1, b.1)""",
    computations="""
update {
  p = f32[4,100] parameter(0)
  q = f32[4,100] parameter(1)
  r = f32[1,100] parameter(2)
  zero = s32[] constant(0)
  p.1 = f32[4,100] dynamic-update-slice(p, r, zero, zero)
  q.1 = f32[4,100] dynamic-update-slice(q, r, zero, zero)
  ROOT u = (f32[4,100], f32[4,100]) tuple(p.1, q.1)
}""",
    header="is_scheduled=true,"
    " input_output_alias={ {0}: (0, {}), {1}: (1, {}) }",
  )
  assert _estimated(module) == 4 * (400 + 400 + 100)
