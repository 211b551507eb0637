# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""How a kernel accesses memory: bytes, pattern, threads, collisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
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
  # Of a column reduction as many as it has results.
  assert kernel.num_columns == (16 if pattern == "column-reduction" else 0)


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


def test_concatenations_have_as_many_threads_as_xla_launches(
  h100s: Sequence[jax.Device], tmp_path: pathlib.Path
):
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


@pytest.fixture(scope="module")
def analyzed(
  h100s: Sequence[jax.Device], scheduled: Callable[..., hlo.Module]
) -> compiled_kernels.Analyze:
  """Compiles a function of bf16 arrays and analyzes its module."""
  return compiled_kernels.analyzing(h100s, scheduled)


def test_a_loop_reads_and_writes_only_its_slice(
  analyzed: compiled_kernels.Analyze,
) -> None:
  steps, rows, width = 6, 256, 512

  def keep_all(weights: jax.Array, x: jax.Array) -> object:
    return jax.lax.scan(
      lambda h, w: (jnp.sin(h) + w.astype(jnp.float32), h), x, weights
    )

  def f32(weights: jax.Array, x: jax.Array) -> object:
    return keep_all(weights, x.astype(jnp.float32))

  analysis = analyzed(f32, (steps, rows, width), (rows, width))
  inside = [
    kernel
    for kernel in analysis.kernels.values()
    if kernel.executions == steps and kernel.result_elements > 1
  ]
  elements = rows * width
  assert {k.result_elements for k in inside} == {elements}
  # h and a slice of the weights: read, with sin(h) + w written. It reads the
  # loop's counter, too.
  computed = [k.num_bytes for k in inside if k.pattern != "memcpy"]
  assert computed == [elements * (4 + 2 + 4) + 4]
  # h, kept: read once and written once. From JAX 0.11 on XLA starts that beside
  # kernels, and before it is one of them.
  kept = [k.num_bytes for k in inside if k.pattern == "memcpy"]
  for copy in analysis.copies.values():
    assert copy.executions == steps
    kept.append(2 * copy.num_bytes)
  assert kept == [elements * (4 + 4)]


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
  operation: str, num_bytes: int, result_elements: int
) -> None:
  kernel = compiled_kernels.handwritten(f"""
    x = f32[64,16] parameter(0)
    u = f32[4,16] parameter(1)
    i = s32[] parameter(2)
    ROOT out = {operation}
  """)
  assert (kernel.num_bytes, kernel.result_elements) == (
    num_bytes,
    result_elements,
  )


def test_an_operand_read_in_whole_and_in_part_counts_once() -> None:
  kernel = compiled_kernels.handwritten(
    """
      x = f32[64,16] parameter(0)
      ROOT out = (f32[4,16], f32[64,16]) fusion(x), kind=kLoop, calls=f
    """,
    computations="""
      f {
        x = f32[64,16] parameter(0)
        flat = f32[1024] bitcast(x)
        back = f32[64,16] bitcast(flat)
        part = f32[4,16] slice(back), slice={[0:4],[0:16]}
        whole = f32[64,16] negate(x)
        ROOT out = (f32[4,16], f32[64,16]) tuple(part, whole)
      }
    """,
  )
  assert kernel.num_bytes == 4 * (1024 + 64 + 1024)
  assert kernel.result_elements == 1024


def _summing(name: str, *, inside: str) -> kernels.Kernel:
  return compiled_kernels.handwritten(
    f"""
      {name} = f32[64,16] parameter(0)
      ROOT {name}.out = f32[64] fusion({name}), kind=kInput, calls=f
    """,
    computations=f"""
      r {{
        a = f32[] parameter(0)
        b = f32[] parameter(1)
        ROOT c = f32[] add(a, b)
      }}
      f {{
        {name}.x = f32[64,16] parameter(0)
        zero = f32[] constant(0)
        y = f32[64,16] {inside}({name}.x)
        ROOT z = f32[64] reduce(y, zero), dimensions={{1}}, to_apply=r
      }}
    """,
  )


def test_a_fusion_is_the_same_kernel_by_any_name() -> None:
  one, other = (_summing(name, inside="negate") for name in ("one", "other"))

  assert (one.name, other.name) == ("one.out", "other.out")
  assert dataclasses.replace(one, name="other.out") == other


def test_fusions_of_one_form_that_do_other_things_are_other_kernels() -> None:
  computed = _summing("one", inside="negate")
  moved = _summing("one", inside="bitcast")

  assert computed.num_element_operations > moved.num_element_operations


def test_an_async_fusion_moves_what_the_fusion_moves() -> None:
  fusion = """
    f {
      x = f32[64,16] parameter(0)
      part = f32[4,16] slice(x), slice={[0:4],[0:16]}
      ROOT out = f32[4,16] negate(part)
    }
  """
  plain = compiled_kernels.handwritten(
    """
      x = f32[64,16] parameter(0)
      ROOT out = f32[4,16] fusion(x), kind=kLoop, calls=f
    """,
    computations=fusion,
  )
  asynchronous = compiled_kernels.handwritten(
    """
      x = f32[64,16] parameter(0)
      begin = ((f32[64,16]), f32[4,16]) fusion-start(x), kind=kLoop, calls=f
      ROOT out = f32[4,16] fusion-done(begin)
    """,
    computations=fusion,
  )
  assert plain.num_bytes == asynchronous.num_bytes == 2 * 4 * 64
  assert plain.category == asynchronous.category == "fusion"


def test_a_fusion_reads_only_what_its_results_depend_on() -> None:
  kernel = compiled_kernels.handwritten(
    """
      x = bf16[64,16] parameter(0)
      ROOT out = f32[4,16] fusion(x), kind=kLoop, calls=f
    """,
    computations="""
      f {
        x = bf16[64,16] parameter(0)
        wide = f32[64,16] convert(x)
        ROOT part = f32[4,16] slice(wide), slice={[0:4],[0:16]}
      }
    """,
  )
  assert kernel.num_bytes == 4 * 16 * (2 + 4)
  assert kernel.num_element_operations == 4 * 16
