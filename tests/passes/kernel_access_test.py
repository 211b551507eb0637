# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""How a kernel accesses memory: its pattern, its threads, its collisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import pytest

import compiled_kernels
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels
from lagom_xla.report import notes as notes_lib


def test_a_reduction_of_what_is_made_up_has_operations_but_few_bytes() -> None:
  kernel = compiled_kernels.handwritten(
    """
      x = f32[8] parameter(0)
      ROOT out = f32[8] fusion(x), kind=kInput, calls=f
    """,
    computations="""
      f {
        x = f32[8] parameter(0)
        zero = f32[] constant(0)
        all = f32[8,1000] broadcast(x), dimensions={0}
        place = f32[8,1000] iota(), iota_dimension=1
        scaled = f32[8,1000] multiply(all, place)
        ROOT sum = f32[8] reduce(scaled, zero), dimensions={1}, to_apply=add
      }
    """,
  )
  assert kernel.num_bytes == 2 * 8 * 4
  # One for the iota, one for the product, one for the sum.
  assert kernel.num_element_operations == 3 * 8000
  assert kernel.pattern == "row-reduction"


@pytest.mark.parametrize(
  ("operation", "pattern"),
  [
    ("f32[64,16] negate(x)", "elementwise"),
    ("f32[64,16]{1,0} copy(x)", "elementwise"),
    ("f32[64,16]{0,1} copy(x)", "transpose"),
    ("f32[16,64] transpose(x), dimensions={1,0}", "transpose"),
    ("f32[64] reduce(x, z), dimensions={1}, to_apply=add", "row-reduction"),
    ("f32[16] reduce(x, z), dimensions={0}, to_apply=add", "column-reduction"),
  ],
)
def test_the_pattern_tells_which_dimension_stays_innermost(
  operation: str, pattern: str
) -> None:
  kernel = compiled_kernels.handwritten(
    f"""
      x = f32[64,16] parameter(0)
      z = f32[] parameter(1)
      ROOT out = {operation}
    """,
  )
  assert kernel.pattern == pattern


def _fusion(fused: str, kind: str = "kLoop") -> kernels.Kernel:
  """A fusion of a big array, a part of it, and a position."""
  return compiled_kernels.handwritten(
    f"""
      x = bf16[8,64,16] parameter(0)
      u = bf16[1,64,16] parameter(1)
      i = s32[] parameter(2)
      ROOT out = bf16[8,64,16] fusion(x, u, i), kind={kind}, calls=f
    """,
    computations=f"""
      f {{
        x = bf16[8,64,16] parameter(0)
        u = bf16[1,64,16] parameter(1)
        i = s32[] parameter(2)
        {fused}
      }}
    """,
  )


def test_an_update_in_place_moves_the_update_by_one_element_a_thread() -> None:
  kernel = _fusion("ROOT r = bf16[8,64,16] dynamic-update-slice(x, u, i, i, i)")
  assert kernel.num_bytes == 2 * 2 * 64 * 16 + 4
  assert kernel.num_threads == 64 * 16
  assert kernel.num_element_operations == 0


def test_an_update_that_more_is_done_with_is_read_whole() -> None:
  kernel = _fusion("""
    d = bf16[8,64,16] dynamic-update-slice(x, u, i, i, i)
    ROOT r = bf16[8,64,16] negate(d)
  """)
  assert kernel.num_bytes == 2 * (8 + 8 + 1) * 64 * 16 + 4
  assert kernel.num_threads == 8 * 64 * 16 / 4


@pytest.mark.parametrize(
  ("operation", "elements_per_thread"), [("negate", 4), ("sine", 1)]
)
def test_a_thread_takes_four_elements_unless_one_calls_a_function(
  operation: str, elements_per_thread: int
) -> None:
  kernel = _fusion(f"ROOT r = bf16[8,64,16] {operation}(x)")
  assert kernel.num_threads == 8 * 64 * 16 / elements_per_thread


@pytest.mark.parametrize(
  ("first", "dim", "elements_per_thread"), [(2, 0, 2), (1, 0, 1), (4, 1, 4)]
)
def test_a_thread_of_a_concatenation_takes_what_divides_every_operand(
  first: int, dim: int, elements_per_thread: int
) -> None:
  sizes = [8, 64, 16]
  sizes[dim] = first
  limits = ",".join(f"[0:{size}]" for size in sizes)
  shape = ",".join(map(str, sizes))
  whole = [8, 64, 16]
  whole[dim] += first
  kernel = _fusion(
    f"""
      part = bf16[{shape}] slice(x), slice={{{limits}}}
      ROOT r = bf16[{",".join(map(str, whole))}] concatenate(part, x),
        dimensions={{{dim}}}
    """,
    kind="kInput",
  )
  assert kernel.num_threads == 8 * 64 * 16 / elements_per_thread


def test_the_columns_of_a_column_reduction_are_its_results() -> None:
  kernel = compiled_kernels.handwritten("""
    x = f32[64,16] parameter(0)
    z = f32[] parameter(1)
    ROOT out = f32[16] reduce(x, z), dimensions={0}, to_apply=add
  """)
  assert kernel.num_columns == 16


@pytest.mark.parametrize(
  ("indices", "unique", "may_collide"),
  [((1024,), False, True), ((1024,), True, False), ((1024, 2), False, False)],
  ids=["rows", "unique rows", "coordinates"],
)
def test_scatters_of_rows_may_collide_unless_told_otherwise(
  scheduled: Callable[..., hlo.Module],
  h100s: Sequence[jax.Device],
  indices: tuple[int, ...],
  unique: bool,
  may_collide: bool,
) -> None:
  everywhere = NamedSharding(Mesh(h100s, ("x",)), PartitionSpec())
  window = (64,) if len(indices) == 1 else ()

  def add(table: jax.Array, ids: jax.Array, updates: jax.Array) -> jax.Array:
    at = ids if len(indices) == 1 else (ids[:, 0], ids[:, 1])
    return table.at[at].add(updates, unique_indices=unique)

  arguments = [
    jax.ShapeDtypeStruct(shape, dtype, sharding=everywhere)
    for shape, dtype in (
      ((4096, 64), jnp.bfloat16),
      (indices, jnp.int32),
      ((1024, *window), jnp.bfloat16),
    )
  ]
  module = scheduled(jax.jit(add).lower(*arguments))
  (scatter,) = [
    k.scatter for k in compiled_kernels.of_module(module) if k.scatter
  ]
  assert scatter.num_updates == 1024
  assert scatter.window_elements == (64 if window else 1)
  assert scatter.element_bits == 16
  assert scatter.may_collide == may_collide
  step = step_lib.of_module(module, cluster_lib.parse("1x8xh100"))
  notes = notes_lib.scatter_notes(step, step_time_us=0.0)
  assert len(notes) == may_collide
  assert all("(kernel_access_test.py:" in note for note in notes)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_the_gradient_of_attention_is_told_apart(direction: str) -> None:
  kernel = compiled_kernels.handwritten(f"""
    q = bf16[2,128,8,64] parameter(0)
    ROOT out = bf16[2,128,8,64] custom-call(q, q, q),
      custom_call_target="te_fused_attn_{direction}_ffi"
  """)
  assert kernel.is_backward == (direction == "backward")
