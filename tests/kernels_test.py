# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What kernels do, counted by hand from the shapes of what was compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
import json

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import pytest

import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels
from lagom_xla.passes import overlap
from lagom_xla.report import scatters as scatters_report

_CUBLAS = {"xla_gpu_enable_triton_gemm": False}
_TRITON = {"xla_gpu_enable_triton_gemm": True}

Compile = Callable[..., tuple[kernels.Kernel, ...]]


@pytest.fixture(scope="module")
def compiled(
  h100s: Sequence[jax.Device], scheduled: Callable[..., hlo.Module]
) -> Compile:
  """Compiles a function of bf16 arrays and returns its kernels."""
  everywhere = NamedSharding(Mesh(h100s, ("x",)), PartitionSpec())

  def kernels_of(
    fn: Callable[..., object], *shapes: tuple[int, ...], **options: bool
  ) -> tuple[kernels.Kernel, ...]:
    args = [
      jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=everywhere)
      for shape in shapes
    ]
    return _kernels(scheduled(jax.jit(fn).lower(*args), **options))

  return kernels_of


def _kernels(module: hlo.Module) -> tuple[kernels.Kernel, ...]:
  return tuple(overlap.analyze(module).kernels.values())


def _handwritten(body: str, *, computations: str = "") -> kernels.Kernel:
  """The only kernel of a module of handwritten HLO."""
  (kernel,) = _kernels(hlo_text.load(body, computations=computations))
  return kernel


def _gemm_flops(found: Sequence[kernels.Kernel]) -> int:
  return sum(k.flops * k.executions for k in found if k.category == "gemm")


# Matrix products.


@pytest.mark.parametrize(
  "options", [_TRITON, _CUBLAS], ids=["triton", "cublas"]
)
@pytest.mark.parametrize(
  ("equation", "lhs", "rhs", "flops"),
  [
    ("ik,kj->ij", (256, 512), (512, 1024), 2 * 256 * 512 * 1024),
    ("ki,jk->ij", (512, 256), (1024, 512), 2 * 256 * 512 * 1024),
    ("bik,bkj->bij", (4, 256, 512), (4, 512, 64), 2 * 4 * 256 * 512 * 64),
    ("bqhd,bkhd->bhqk", (2, 64, 4, 32), (2, 64, 4, 32), 2 * 8 * 64 * 64 * 32),
    ("abk,kcd->abcd", (8, 32, 128), (128, 16, 64), 2 * 256 * 128 * 1024),
  ],
)
def test_a_matrix_product_takes_two_operations_per_multiply(
  compiled: Compile,
  options: dict[str, bool],
  equation: str,
  lhs: tuple[int, ...],
  rhs: tuple[int, ...],
  flops: int,
) -> None:
  found = compiled(lambda a, b: jnp.einsum(equation, a, b), lhs, rhs, **options)
  assert _gemm_flops(found) == flops
  (gemm,) = (k for k in found if k.category == "gemm")
  assert gemm.element_type == "bf16"
  assert gemm.matrix_shape is not None
  batch, m, n, k = gemm.matrix_shape
  assert 2 * batch * m * n * k == flops


def test_a_library_calls_scratch_memory_is_no_result(compiled: Compile) -> None:
  (gemm,) = compiled(jnp.matmul, (256, 512), (512, 1024), **_CUBLAS)
  assert gemm.category == "gemm"
  assert gemm.matrix_shape == (1, 256, 1024, 512)
  assert gemm.result_elements == 256 * 1024
  assert gemm.num_bytes == 2 * (256 * 512 + 512 * 1024 + 256 * 1024)


@pytest.mark.parametrize(
  "options", [_TRITON, _CUBLAS], ids=["triton", "cublas"]
)
@pytest.mark.parametrize("unroll", [False, True], ids=["scan", "unrolled"])
def test_a_train_steps_products_are_those_of_its_layers(
  scheduled: Callable[..., hlo.Module],
  fsdp_step: Callable[..., jax.stages.Lowered],
  sizes: dict[str, int],
  options: dict[str, bool],
  unroll: bool,
) -> None:
  rows = sizes["rows"] // 8
  layer = 2 * rows * sizes["width"] * sizes["hidden"]
  head = 2 * rows * sizes["width"] * sizes["classes"]
  # Forward, gradient of the input, gradient of the weight.
  expected = 3 * (sizes["layers"] * 2 * layer + head)
  if unroll:  # There XLA sees that nobody wants the gradient of the data.
    expected -= layer
  found = _kernels(scheduled(fsdp_step(unroll=unroll), **options))
  assert _gemm_flops(found) == expected


def test_tensor_parallel_products_are_an_eighth_of_each_layer(
  tp_scan: hlo.Module, sizes: dict[str, int]
) -> None:
  layer = 2 * sizes["rows"] * sizes["width"] * sizes["hidden"] // 8
  head = 2 * sizes["rows"] * sizes["width"] * sizes["classes"]
  expected = 3 * (sizes["layers"] * 2 * layer + head)
  assert _gemm_flops(_kernels(tp_scan)) == expected


def test_a_grouped_product_multiplies_each_row_once() -> None:
  config = json.dumps({"grouped_gemm_backend_config": {}})
  kernel = _handwritten(f"""
    rows = bf16[256,512] parameter(0)
    experts = bf16[4,512,1024] parameter(1)
    sizes = s32[4] parameter(2)
    ROOT out = (bf16[256,1024], s8[4096]) custom-call(rows, experts, sizes),
      custom_call_target="__cublas$lt$groupedMatmul", backend_config={config}
  """)
  assert kernel.category == "gemm"
  assert kernel.flops == 2 * 256 * 512 * 1024
  num_bytes = 2 * (256 * 512 + 4 * 512 * 1024 + 256 * 1024) + 4 * 4
  assert kernel.num_bytes == num_bytes


def test_a_fusion_of_two_products_has_the_operations_of_both() -> None:
  kernel = _handwritten(
    """
      a = bf16[64,32] parameter(0)
      b = bf16[32,16] parameter(1)
      ROOT out = bf16[64,32] fusion(a, b), kind=kCustom, calls=f
    """,
    computations="""
      f {
        a = bf16[64,32] parameter(0)
        b = bf16[32,16] parameter(1)
        ab = bf16[64,16] dot(a, b), lhs_contracting_dims={1},
          rhs_contracting_dims={0}
        ROOT abb = bf16[64,32] dot(ab, b), lhs_contracting_dims={1},
          rhs_contracting_dims={1}
      }
    """,
  )
  assert kernel.category == "gemm"
  assert kernel.flops == 2 * (2 * 64 * 32 * 16)
  assert kernel.num_bytes == 2 * (64 * 32 + 32 * 16 + 64 * 32)


def test_a_convolution_and_its_gradients_cost_the_same(
  compiled: Compile,
) -> None:
  def convolve(image: jax.Array, kernel: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(
      image,
      kernel,
      (1, 1),
      "SAME",
      dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )

  def gradients(image: jax.Array, kernel: jax.Array) -> object:
    return jax.vjp(convolve, image, kernel)[1](
      jnp.ones((8, 16, 16, 64), "bfloat16")
    )

  shapes = ((8, 16, 16, 32), (3, 3, 32, 64))
  flops = 2 * (8 * 16 * 16 * 64) * (3 * 3 * 32)
  forward = [k for k in compiled(convolve, *shapes) if k.flops]
  backward = [k for k in compiled(gradients, *shapes) if k.flops]
  assert [(k.category, k.flops) for k in forward] == [("convolution", flops)]
  assert [(k.category, k.flops) for k in backward] == [
    ("convolution", flops),
    ("convolution", flops),
  ]


@pytest.mark.parametrize(
  ("direction", "key_length", "products"),
  [("forward", 128, 2), ("backward", 128, 5), ("forward", 256, 2)],
)
def test_fused_attention_is_its_products_halved_by_a_causal_mask(
  direction: str, key_length: int, products: int
) -> None:
  kernel = _handwritten(f"""
    q = bf16[2,128,8,64] parameter(0)
    k = bf16[2,{key_length},8,64] parameter(1)
    ROOT out = (bf16[2,128,8,64], u8[1000]) custom-call(q, k, k),
      custom_call_target="te_fused_attn_{direction}_ffi"
  """)
  assert kernel.category == "attention"
  flops = products * 2 * (2 * 8 * 128 * key_length) * 64
  assert kernel.flops == (flops // 2 if key_length == 128 else flops)
  assert kernel.result_elements == 2 * 128 * 8 * 64


# Bytes.


def test_a_loop_reads_and_writes_only_its_slice(compiled: Compile) -> None:
  steps, rows, width = 6, 256, 512

  def keep_all(weights: jax.Array, x: jax.Array) -> object:
    return jax.lax.scan(
      lambda h, w: (jnp.sin(h) + w.astype(jnp.float32), h), x, weights
    )

  def f32(weights: jax.Array, x: jax.Array) -> object:
    return keep_all(weights, x.astype(jnp.float32))

  found = compiled(f32, (steps, rows, width), (rows, width))
  inside = [k for k in found if k.executions == steps and k.result_elements > 1]
  elements = rows * width
  # h, kept: read once and written once. Of h, w: read, with sin(h) + w written.
  # Each kernel also reads the loop's counter.
  moved = sum(k.num_bytes for k in inside)
  assert {k.result_elements for k in inside} == {elements}
  assert moved == pytest.approx(elements * (4 + 4 + 4 + 2 + 4), abs=64)


@pytest.mark.parametrize(
  ("operation", "num_bytes", "result_elements"),
  [
    ("f32[4,16] dynamic-slice(x, i, i), dynamic_slice_sizes={4,16}", 512, 64),
    ("f32[4,16] slice(x), slice={[0:4],[0:16]}", 512, 64),
    ("f32[64,16] dynamic-update-slice(x, u, i, i)", 512, 64),
    ("f32[64,16] negate(x)", 8192, 1024),
    ("f32[64,16] copy(x)", 8192, 1024),
    ("(f32[64,16], f32[64,16], u32[]) copy-start(x)", 8192, 1024),
  ],
)
def test_bytes_of_an_instruction_by_itself(
  operation: str, num_bytes: int, result_elements: int
) -> None:
  kernel = _handwritten(f"""
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
  kernel = _handwritten(
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
  return _handwritten(
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
      ROOT part = f32[4,16] slice(x), slice={[0:4],[0:16]}
    }
  """
  plain = _handwritten(
    """
      x = f32[64,16] parameter(0)
      ROOT out = f32[4,16] fusion(x), kind=kLoop, calls=f
    """,
    computations=fusion,
  )
  asynchronous = _handwritten(
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
  kernel = _handwritten(
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


# Arithmetic and access.


def test_a_reduction_of_what_is_made_up_has_operations_but_few_bytes() -> None:
  kernel = _handwritten(
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
  kernel = _handwritten(
    f"""
      x = f32[64,16] parameter(0)
      z = f32[] parameter(1)
      ROOT out = {operation}
    """,
  )
  assert kernel.pattern == pattern


def _fusion(fused: str, kind: str = "kLoop") -> kernels.Kernel:
  """A fusion of a big array, a part of it, and a position."""
  return _handwritten(
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
  kernel = _handwritten("""
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
  (scatter,) = [k.scatter for k in _kernels(module) if k.scatter]
  assert scatter.num_updates == 1024
  assert scatter.window_elements == (64 if window else 1)
  assert scatter.element_bits == 16
  assert scatter.may_collide == may_collide
  step = step_lib.of_module(module, cluster_lib.parse("1x8xh100"))
  notes = scatters_report.notes(step, step_time_us=0.0)
  assert len(notes) == may_collide
  assert all("(kernels_test.py:" in note for note in notes)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_the_gradient_of_attention_is_told_apart(direction: str) -> None:
  kernel = _handwritten(f"""
    q = bf16[2,128,8,64] parameter(0)
    ROOT out = bf16[2,128,8,64] custom-call(q, q, q),
      custom_call_target="te_fused_attn_{direction}_ffi"
  """)
  assert kernel.is_backward == (direction == "backward")


# What is a kernel.


def test_what_takes_no_time_on_the_gpu_is_no_kernel() -> None:
  kernel = _handwritten("""
    x = f32[8] parameter(0)
    one = f32[8] constant({1,1,1,1,1,1,1,1})
    both = (f32[8], f32[8]) tuple(x, one)
    first = f32[8] get-tuple-element(both), index=0
    flat = f32[2,4] bitcast(first)
    here = u32[] partition-id()
    fence = f32[2,4] opt-barrier(flat)
    ROOT out = f32[2,4] negate(fence)
  """)
  assert kernel.name == "out"
  assert kernel.category == "other"


def test_every_fusion_and_library_call_of_a_step_is_one_kernel(
  train_step_module: hlo.Module,
) -> None:
  analysis = overlap.analyze(train_step_module)
  launches = [
    instruction.id
    for computation in analysis.sequences
    for instruction in computation.instructions
    if instruction.opcode in ("fusion", "custom-call", "copy")
  ]
  assert set(launches) <= set(analysis.kernels)
  for instruction_id, kernel in analysis.kernels.items():
    assert kernel.instruction_id == instruction_id
    assert kernel.executions >= 1
    assert kernel.num_bytes > 0
    assert (kernel.category == "gemm") == (kernel.flops > 0)
