# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""How a kernel accesses memory: bytes, pattern, threads, collisions."""

from __future__ import annotations

import pathlib
import re

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np
import pytest

import compiled_kernels
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels
from lagom_xla.passes import memory_access
from lagom_xla.report import notes as notes_lib


def _fused(
  fused: str, *given: str, result: str, kind: str = "kLoop"
) -> kernels.Kernel:
  """The kernel of a fusion of p0, p1 and so on, of these types."""
  parameters = "\n".join(
    f"p{i} = {shape} parameter({i})" for i, shape in enumerate(given)
  )
  operands = ", ".join(f"p{i}" for i in range(len(given)))
  return compiled_kernels.handwritten(
    f"""
      {parameters}
      ROOT out = {result} fusion({operands}), kind={kind}, calls=f
    """,
    computations=f"f {{\n{parameters}\n{fused}\n}}\n",
  )


def _of_stack(fused: str) -> kernels.Kernel:
  """A fusion of a stack, of a layer of it, and of a position."""
  stack, layer = "bf16[8,64,16]", "bf16[1,64,16]"
  return _fused(fused, stack, layer, "s32[]", result=stack)


def test_a_reduction_of_what_is_made_up_has_operations_but_few_bytes():
  kernel = _fused(
    """
      zero = f32[] constant(0)
      all = f32[8,1000] broadcast(p0), dimensions={0}
      place = f32[8,1000] iota(), iota_dimension=1
      scaled = f32[8,1000] multiply(all, place)
      ROOT sum = f32[8] reduce(scaled, zero), dimensions={1}, to_apply=add
    """,
    "f32[8]",
    result="f32[8]",
    kind="kInput",
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
def test_the_pattern_tells_which_dimension_stays_innermost(operation, pattern):
  kernel = compiled_kernels.handwritten(
    f"""
      x = f32[64,16] parameter(0)
      z = f32[] parameter(1)
      ROOT out = {operation}
    """,
  )
  assert kernel.pattern == pattern
  # Of a column reduction as many as it has results.
  assert kernel.num_columns == (16 if pattern == "column-reduction" else 0)


def test_an_update_in_place_moves_the_update_by_one_element_a_thread():
  update = "dynamic-update-slice(p0, p1, p2, p2, p2)"
  kernel = _of_stack(f"ROOT r = bf16[8,64,16] {update}")
  assert kernel.num_bytes == 2 * 2 * 64 * 16 + 4
  assert kernel.num_threads == 64 * 16
  assert kernel.num_element_operations == 0


def test_an_update_that_more_is_done_with_is_read_whole():
  kernel = _of_stack("""
    d = bf16[8,64,16] dynamic-update-slice(p0, p1, p2, p2, p2)
    ROOT r = bf16[8,64,16] negate(d)
  """)
  assert kernel.num_bytes == 2 * (8 + 8 + 1) * 64 * 16 + 4
  assert kernel.num_threads == 8 * 64 * 16 / 4


@pytest.mark.parametrize(
  ("operation", "elements_per_thread"), [("negate", 4), ("sine", 1)]
)
def test_a_thread_takes_four_elements_unless_one_calls_a_function(
  operation, elements_per_thread
):
  kernel = _of_stack(f"ROOT r = bf16[8,64,16] {operation}(p0)")
  assert kernel.num_threads == 8 * 64 * 16 / elements_per_thread


@pytest.mark.parametrize(
  ("indices", "unique", "may_collide"),
  [((1024,), False, True), ((1024,), True, False), ((1024, 2), False, False)],
  ids=["rows", "unique rows", "coordinates"],
)
def test_scatters_of_rows_may_collide_unless_told_otherwise(
  scheduled, h100s, indices, unique, may_collide
):
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


def _num_launched(folder: pathlib.Path) -> dict[str, int]:
  """The threads of each kernel, as XLA dumps how it launches them."""
  (dumped,) = folder.glob("*.thunk_sequence.txt")
  launches = re.findall(
    r" (\S+) grid: \[(\d+), 1, 1\] threads: \[(\d+), 1, 1\]",
    dumped.read_text(encoding="utf-8"),
  )
  return {
    name: int(blocks) * int(of_block) for name, blocks, of_block in launches
  }


def test_concatenations_have_as_many_threads_as_xla_launches(h100s, tmp_path):
  """Of arrays that fill the GPU; XLA does not vectorize smaller ones."""
  mesh = jax.sharding.Mesh(np.array(h100s), ("x",))
  whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

  @jax.jit
  def concatenated(x: jax.Array) -> tuple[jax.Array, ...]:
    parts = [
      # What each operand has along the dimension: of 1024, 1023 and 1022, the
      # greatest divisor that four shares is four, one and two.
      [2 * x, 3 * x],
      [4 * x, 5 * x[:, 1:]],
      [6 * x, 7 * x[:, 2:]],
      [i * x for i in range(8, 20)],
    ]
    return tuple(jnp.concatenate(part, axis=1) for part in parts)

  x = jax.ShapeDtypeStruct((1024, 1024), jnp.float32, sharding=whole)
  compiled = concatenated.lower(x).compile(
    compiler_options={
      "xla_dump_to": str(tmp_path),
      "xla_dump_hlo_as_text": True,
    }
  )
  module = hlo.load(compiled)
  launched = _num_launched(tmp_path)
  elements = 1024 * 1024
  assert set(launched.values()) == {
    elements // 4,
    elements,
    elements // 2,
    12 * elements,
  }
  for fusion in module.entry.instructions:
    if fusion.opcode == "fusion":
      (fused,) = (module.computations[c] for c in fusion.called_computation_ids)
      assert (
        memory_access.threads_of_fusion(fused, fusion.fusion_kind)
        == launched[fusion.name.replace(".", "_")]
      )


@pytest.mark.parametrize(
  ("operation", "num_bytes", "result_elements"),
  [
    ("f32[4,16] dynamic-slice(x, i, i), dynamic_slice_sizes={4,16}", 512, 64),
    ("f32[4,16] slice(x), slice={[0:4],[0:16]}", 512, 64),
    ("f32[64,16] dynamic-update-slice(x, u, i, i)", 512, 64),
    ("f32[64,16] negate(x)", 8192, 1024),
    ("f32[64,16] copy(x)", 8192, 1024),
  ],
)
def test_bytes_of_an_instruction_by_itself(
  operation, num_bytes, result_elements
):
  kernel = compiled_kernels.handwritten(f"""
    x = f32[64,16] parameter(0)
    u = f32[4,16] parameter(1)
    i = s32[] parameter(2)
    ROOT out = {operation}
  """)
  assert kernel.num_bytes == num_bytes
  assert kernel.result_elements == result_elements


def test_an_operand_read_in_whole_and_in_part_counts_once():
  kernel = _fused(
    """
      flat = f32[1024] bitcast(p0)
      back = f32[64,16] bitcast(flat)
      part = f32[4,16] slice(back), slice={[0:4],[0:16]}
      whole = f32[64,16] negate(p0)
      ROOT out = (f32[4,16], f32[64,16]) tuple(part, whole)
    """,
    "f32[64,16]",
    result="(f32[4,16], f32[64,16])",
  )
  assert kernel.num_bytes == 4 * (1024 + 64 + 1024)
  assert kernel.result_elements == 1024


def test_an_async_fusion_moves_what_the_fusion_moves():
  fused = """
      part = f32[4,16] slice(p0), slice={[0:4],[0:16]}
      ROOT out = f32[4,16] negate(part)
  """
  plain = _fused(fused, "f32[64,16]", result="f32[4,16]")
  asynchronous = compiled_kernels.handwritten(
    """
      x = f32[64,16] parameter(0)
      begin = ((f32[64,16]), f32[4,16]) fusion-start(x), kind=kLoop, calls=f
      ROOT out = f32[4,16] fusion-done(begin)
    """,
    computations=f"f {{\np0 = f32[64,16] parameter(0)\n{fused}\n}}\n",
  )
  assert plain.num_bytes == asynchronous.num_bytes == 2 * 4 * 64
  assert plain.category == asynchronous.category == "fusion"


def test_a_fusion_reads_only_what_its_results_depend_on():
  kernel = _fused(
    """
      wide = f32[64,16] convert(p0)
      ROOT part = f32[4,16] slice(wide), slice={[0:4],[0:16]}
    """,
    "bf16[64,16]",
    result="f32[4,16]",
  )
  assert kernel.num_bytes == 4 * 16 * (2 + 4)
  assert kernel.num_element_operations == 4 * 16
