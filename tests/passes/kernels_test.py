# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Operations and bytes of kernels, counted by hand from shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import json
import pathlib
import re
from typing import Any

import jax
from jax._src.cudnn import fused_attention_stablehlo as fused_attention
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
from jaxlib.mlir import ir
import pytest

import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels
from lagom_xla.passes import memory_access
from lagom_xla.passes import overlap
from lagom_xla.report import notes as notes_lib

_CUBLAS = {"xla_gpu_enable_triton_gemm": False}
_TRITON = {"xla_gpu_enable_triton_gemm": True}
_with_both = pytest.mark.parametrize(
  "options", [_TRITON, _CUBLAS], ids=["triton", "cublas"]
)

Compile = Callable[..., list[kernels.Kernel]]


@pytest.fixture(scope="module")
def compiled(h100s, scheduled) -> Compile:
  """Compiles a function of bf16 arrays and returns its kernels."""
  everywhere = NamedSharding(Mesh(h100s, ("x",)), PartitionSpec())

  def kernels_of(
    fn: Callable[..., object], *shapes: tuple[int, ...], **options: bool
  ) -> list[kernels.Kernel]:
    args = [
      jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=everywhere)
      for shape in shapes
    ]
    return _of_module(scheduled(jax.jit(fn).lower(*args), **options))

  return kernels_of


def _of_module(module: hlo.Module) -> list[kernels.Kernel]:
  return list(overlap.analyze(module).kernels.values())


def _handwritten(body: str, *, computations: str = "") -> kernels.Kernel:
  """The only kernel of a module of handwritten HLO."""
  (kernel,) = _of_module(hlo_text.load(body, computations=computations))
  return kernel


def _parameters(given: Sequence[str]) -> tuple[str, str]:
  """Lines that define p0, p1 and so on of these types, and their names."""
  lines = (f"p{i} = {shape} parameter({i})" for i, shape in enumerate(given))
  return "\n".join(lines), ", ".join(f"p{i}" for i in range(len(given)))


def _gemm_flops(found: Sequence[kernels.Kernel]) -> int:
  return sum(k.flops * k.executions for k in found if k.category == "gemm")


def _call(
  target: str, config: str, given: Sequence[str], result: str
) -> kernels.Kernel:
  """A library call, whose results include scratch memory."""
  parameters, names = _parameters(given)
  return _handwritten(
    f"{parameters}\nROOT out = ({result}, u8[1000]) custom-call({names}),"
    f' custom_call_target="{target}"{config}'
  )


def _attention(
  target: str, config: str, query: str, key: str
) -> kernels.Kernel:
  q, k = f"bf16[{query}]", f"bf16[{key}]"
  return _call(target, config, [q, k, k], q)


def _typed_ffi(attributes: dict[str, int]) -> str:
  """Attributes in the form of Transformer Engine's calls."""
  listed = ", ".join(f"{name} = {n} : i64" for name, n in attributes.items())
  return f", api_version=API_VERSION_TYPED_FFI, backend_config={{{listed}}}"


@_with_both
@pytest.mark.parametrize(
  ("equation", "lhs", "rhs", "flops"),
  [
    ("ki,jk->ij", (512, 256), (1024, 512), 2 * 256 * 512 * 1024),
    ("bik,bkj->bij", (4, 256, 512), (4, 512, 64), 2 * 4 * 256 * 512 * 64),
    ("bqhd,bkhd->bhqk", (2, 64, 4, 32), (2, 64, 4, 32), 2 * 8 * 64 * 64 * 32),
    ("abk,kcd->abcd", (8, 32, 128), (128, 16, 64), 2 * 256 * 128 * 1024),
  ],
)
def test_a_matrix_product_counts_two_operations_per_multiply(
  compiled, options, equation, lhs, rhs, flops
):
  found = compiled(lambda a, b: jnp.einsum(equation, a, b), lhs, rhs, **options)
  assert _gemm_flops(found) == flops
  (gemm,) = (k for k in found if k.category == "gemm")
  assert gemm.element_type == "bf16"
  assert gemm.matrix_shape is not None
  batch, m, n, k = gemm.matrix_shape
  assert 2 * batch * m * n * k == flops


@_with_both
@pytest.mark.parametrize("kind", ["scan", "unrolled", "tensor parallel"])
def test_a_train_steps_flops_are_the_sum_over_its_layers(
  scheduled, fsdp_step, tp_step, sizes, options, kind
):
  is_tp = kind == "tensor parallel"
  # Per device: an eighth of the rows, or an eighth of each layer.
  layer = 2 * sizes["rows"] * sizes["width"] * sizes["hidden"] // 8
  head = 2 * sizes["rows"] * sizes["width"] * sizes["classes"]
  # Forward, gradient of the input, gradient of the weight.
  expected = 3 * (sizes["layers"] * 2 * layer + head // (1 if is_tp else 8))
  if kind == "unrolled":  # XLA drops the unused gradient of the data.
    expected -= layer
  lowered = tp_step if is_tp else fsdp_step(unroll=kind == "unrolled")
  found = _of_module(scheduled(lowered, **options))
  assert _gemm_flops(found) == expected


def test_a_grouped_product_multiplies_each_row_once():
  config = json.dumps({"grouped_gemm_backend_config": {}})
  kernel = _call(
    "__cublas$lt$groupedMatmul",
    f", backend_config={config}",
    ["bf16[256,512]", "bf16[4,512,1024]", "s32[4]"],
    "bf16[256,1024]",
  )
  assert kernel.category == "gemm"
  assert kernel.flops == 2 * 256 * 512 * 1024
  num_bytes = 2 * (256 * 512 + 4 * 512 * 1024 + 256 * 1024) + 4 * 4
  assert kernel.num_bytes == num_bytes


def test_a_fusion_of_two_products_counts_the_flops_of_both():
  kernel = _handwritten(
    """
      a = bf16[64,32] parameter(0)
      b = bf16[32,16] parameter(1)
      ROOT out = bf16[64,32] fusion(a, b), kind=kCustom, calls=f
    """,
    computations="""f {
      a = bf16[64,32] parameter(0)
      b = bf16[32,16] parameter(1)
      ab = bf16[64,16] dot(a, b), lhs_contracting_dims={1},
        rhs_contracting_dims={0}
      ROOT abb = bf16[64,32] dot(ab, b), lhs_contracting_dims={1},
        rhs_contracting_dims={1} }""",
  )
  assert kernel.category == "gemm"
  assert kernel.flops == 2 * (2 * 64 * 32 * 16)
  assert kernel.num_bytes == 2 * (64 * 32 + 32 * 16 + 64 * 32)


def test_a_convolution_and_its_gradients_have_equal_flops(compiled):
  def convolve(image: jax.Array, kernel: jax.Array) -> jax.Array:
    order = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
      image, kernel, (1, 1), "SAME", dimension_numbers=order
    )

  def gradients(image: jax.Array, kernel: jax.Array) -> object:
    ones = jnp.ones((8, 16, 16, 64), "bfloat16")
    return jax.vjp(convolve, image, kernel)[1](ones)

  expected = ("convolution", 2 * (8 * 16 * 16 * 64) * (3 * 3 * 32))
  for function, num in ((convolve, 1), (gradients, 2)):
    found = compiled(function, (8, 16, 16, 32), (3, 3, 32, 64))
    products = [(k.category, k.flops) for k in found if k.flops]
    assert products == [expected] * num


@pytest.mark.parametrize(
  ("direction", "key_length", "config", "products"),
  [
    ("forward", 128, "", 2),
    ("backward", 128, "", 5),
    ("forward", 256, "", 2),
    # A call whose attributes give only its mask is counted by its shapes, too.
    ("forward", 64, _typed_ffi({"mask_type": 2}), 2),
    # So is a call whose config lacks the scores' shape.
    ("forward", 128, ', backend_config={"cudnn_fmha_backend_config":{}}', 2),
  ],
)
def test_fused_attention_counts_its_products_halved_by_a_causal_mask(
  direction, key_length, config, products
):
  target = f"te_fused_attn_{direction}_ffi"
  kernel = _attention(target, config, "2,128,8,64", f"2,{key_length},8,64")
  assert kernel.category == "attention"
  flops = products * 2 * (2 * 8 * 128 * key_length) * 64
  assert kernel.flops == (flops // 2 if key_length == 128 else flops)
  assert kernel.result_elements == 2 * 128 * 8 * 64
  assert kernel.is_backward == (direction == "backward")


@pytest.mark.parametrize("layout", list(fused_attention.AttentionLayout))
@pytest.mark.parametrize(
  ("mask", "lengths", "window", "scores"),
  [
    ("NO_MASK", (64, 64), 0, 64 * 64),
    ("NO_MASK", (64, 32), 0, 64 * 32),
    ("CAUSAL", (64, 64), 0, 64 * 64 // 2),
    ("PADDING_CAUSAL", (64, 64), 0, 64 * 64 // 2),
    ("CAUSAL", (64, 64), 16, 48 * 16 + 16 * 16 // 2),
    ("CAUSAL", (64, 256), 0, 64 * 64 // 2),
    ("CAUSAL", (64, 32), 0, 32 * 32 + 32 * 32 // 2),
  ],
)
def test_cudnn_attention_counts_only_scores_that_its_mask_keeps(
  layout, mask, lengths, window, scores
):
  batch, heads, size = 2, 8, 128
  with ir.Context():
    config = fused_attention.create_dot_product_attention_backend_config(
      batch,
      heads,
      *lengths,
      dtype=ir.BF16Type.get(),
      fmha_scale=1.0,
      seed=0,
      dropout_rate=0.0,
      mask_type=fused_attention.MaskType[mask],
      layout=layout.value,
      sliding_window_length=window,
      max_seg_per_batch=1,
      is_paged_attention=False,
      is_bwd=False,
    )
  query, key = (
    f"{batch},{length},{heads},{size}"
    if layout == fused_attention.AttentionLayout.BTNH
    else f"{batch},{heads},{length},{size}"
    for length in lengths
  )
  kernel = _attention(
    "__cudnn$fmhaSoftmax", f", backend_config={config}", query, key
  )
  assert kernel.flops == 2 * 2 * batch * heads * size * scores


@pytest.mark.parametrize(
  ("mask", "lengths", "left", "scores"),
  [
    (0, (64, 64), -1, 64 * 64),
    (1, (64, 32), -1, 64 * 32),
    (2, (64, 64), -1, 64 * 64 // 2),
    (3, (64, 64), 15, 48 * 16 + 16 * 16 // 2),
    (3, (64, 256), -1, 64 * 64 // 2),
    (5, (64, 256), -1, 64 * (256 - 64) + 64 * 64 // 2),
    (5, (64, 256), 15, 64 * 16),
  ],
)
def test_transformer_engine_attention_counts_only_unmasked_scores(
  mask, lengths, left, scores
):
  batch, heads, groups, size = 2, 8, 4, 128
  length, key_length = lengths
  attributes = {
    "attn_heads": heads,
    "input_batch": batch,
    "kv_max_seqlen": key_length,
    "mask_type": mask,
    "num_gqa_groups": groups,
    "q_max_seqlen": length,
    "window_size_left": left,
  }
  for query, key in (
    (f"{length},{heads}", f"{key_length},2,{groups}"),
    (f"{length},3,{heads}", "0"),  # All in one array.
  ):
    kernel = _attention(
      "te_fused_attn_forward_ffi",
      _typed_ffi(attributes),
      f"{batch},{query},{size}",
      f"{batch},{key},{size}",
    )
    assert kernel.flops == 2 * 2 * batch * heads * size * scores


def test_instructions_without_gpu_work_are_not_kernels():
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


def test_every_fusion_library_call_and_copy_of_a_step_is_one_kernel(
  train_step_module,
):
  analysis = overlap.analyze(train_step_module)
  launches = {
    instruction.id
    for computation in analysis.sequences
    for instruction in computation.instructions
    if instruction.opcode in ("fusion", "custom-call", "copy")
  }
  never_asked = {
    train_step_module.computations[loop.called_computation_ids[1]].name
    for computation in analysis.sequences
    for loop in computation.loops
  }
  assert launches <= analysis.kernels.keys()
  for instruction_id, kernel in analysis.kernels.items():
    assert kernel.instruction_id == instruction_id
    assert (kernel.executions == 0) == (kernel.computation in never_asked)
    assert kernel.num_bytes > 0
    assert (kernel.category == "gemm") == (kernel.flops > 0)


def _fused(
  fused: str, *given: str, result: str, kind: str = "kLoop"
) -> kernels.Kernel:
  """The kernel of a fusion of p0, p1 and so on, of these types."""
  parameters, names = _parameters(given)
  return _handwritten(
    f"{parameters}\nROOT out = {result} fusion({names}), kind={kind}, calls=f",
    computations=f"f {{\n{parameters}\n{fused}\n}}\n",
  )


def _of_stack(fused: str) -> kernels.Kernel:
  """A fusion of a stack, of a layer of it, and of a position."""
  stack, layer = "bf16[8,64,16]", "bf16[1,64,16]"
  return _fused(fused, stack, layer, "s32[]", result=stack)


def test_a_reduction_of_generated_values_has_operations_but_few_bytes():
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
def test_the_pattern_follows_from_the_innermost_dimension(operation, pattern):
  kernel = _handwritten(
    f"""
      x = f32[64,16] parameter(0)
      z = f32[] parameter(1)
      ROOT out = {operation}
    """,
  )
  assert kernel.pattern == pattern
  # A column reduction has as many columns as results.
  assert kernel.num_columns == (16 if pattern == "column-reduction" else 0)


def test_an_in_place_update_moves_only_the_update_one_element_per_thread():
  update = "dynamic-update-slice(p0, p1, p2, p2, p2)"
  kernel = _of_stack(f"ROOT r = bf16[8,64,16] {update}")
  assert kernel.num_bytes == 2 * 2 * 64 * 16 + 4
  assert kernel.num_threads == 64 * 16
  assert kernel.num_element_operations == 0


def test_an_updated_array_that_is_used_further_is_read_as_a_whole():
  kernel = _of_stack("""
    d = bf16[8,64,16] dynamic-update-slice(p0, p1, p2, p2, p2)
    ROOT r = bf16[8,64,16] negate(d)
  """)
  assert kernel.num_bytes == 2 * (8 + 8 + 1) * 64 * 16 + 4
  assert kernel.num_threads == 8 * 64 * 16 / 4


@pytest.mark.parametrize(
  ("operation", "elements_per_thread"), [("negate", 4), ("sine", 1)]
)
def test_a_thread_takes_four_elements_unless_it_calls_a_math_function(
  operation, elements_per_thread
):
  kernel = _of_stack(f"ROOT r = bf16[8,64,16] {operation}(p0)")
  assert kernel.num_threads == 8 * 64 * 16 / elements_per_thread


@pytest.mark.parametrize(
  ("indices", "unique", "may_collide"),
  [
    ((16384,), False, True),
    ((16384,), True, False),
    ((16384, 2), False, False),
  ],
  ids=["rows", "unique rows", "coordinates"],
)
def test_row_scatters_may_collide_unless_indices_are_marked_unique(
  scheduled, h100s, indices, unique, may_collide
):
  everywhere = NamedSharding(Mesh(h100s, ("x",)), PartitionSpec())
  window = (640,) if len(indices) == 1 else ()

  def add(table: jax.Array, ids: jax.Array, updates: jax.Array) -> jax.Array:
    at = ids if len(indices) == 1 else (ids[:, 0], ids[:, 1])
    return table.at[at].add(updates, unique_indices=unique)

  arguments = [
    jax.ShapeDtypeStruct(shape, dtype, sharding=everywhere)
    for shape, dtype in (
      ((32000, 640), jnp.bfloat16),
      (indices, jnp.int32),
      ((16384, *window), jnp.bfloat16),
    )
  ]
  module = scheduled(jax.jit(add).lower(*arguments))
  (scatter,) = [k.scatter for k in _of_module(module) if k.scatter]
  assert scatter.num_updates == 16384
  assert scatter.window_elements == (640 if window else 1)
  assert scatter.element_bits == 16
  assert scatter.may_collide == may_collide
  step = step_lib.of_module(module, cluster_lib.parse("1x8xh100"))
  notes = [n for n in notes_lib.step_notes(step) if "compare-and-swap" in n]
  assert len(notes) == may_collide
  for note in notes:
    assert "(kernels_test.py:" in note and " adds 16,384" in note
    assert "46.6 ms if they are all the same" in note


def test_a_note_gives_the_cost_of_ragged_dots_that_xla_makes_dense(
  scheduled, h100s
):
  everywhere = NamedSharding(Mesh(h100s, ("x",)), PartitionSpec())

  def shape(sizes: tuple[int, ...], dtype: Any = jnp.bfloat16) -> Any:
    return jax.ShapeDtypeStruct(sizes, dtype, sharding=everywhere)

  def notes(jitted: Any, *args: Any) -> list[str]:
    module = scheduled(jitted.lower(*args))
    step = step_lib.of_module(module, cluster_lib.parse("1x8xh100"))
    return [n for n in notes_lib.step_notes(step) if "ragged_dot" in n]

  rows, weights = shape((2048, 512)), shape((8, 512, 1024))
  ragged = jax.jit(jax.lax.ragged_dot)
  (note,) = notes(ragged, rows, weights, shape((8,), jnp.int32))
  # Every row times the weights of all eight groups.
  assert f" {8 * 2 * 2048 * 512 * 1024 / 1e12:.3g} TFLOP, " in note
  assert not notes(jax.jit(jnp.matmul), rows, shape((512, 1024)))


def _num_launched(folder: pathlib.Path) -> dict[str, int]:
  """The threads of each kernel, from XLA's dumps of launches."""
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
  whole = NamedSharding(Mesh(h100s, ("x",)), PartitionSpec())

  @jax.jit
  def concatenated(x: jax.Array) -> tuple[jax.Array, ...]:
    parts = [
      # A thread takes as many elements as divide four and each operand's size
      # along the dimension: 1024, 1023 and 1022 give four, one and two.
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
def test_an_unfused_instruction_counts_only_the_bytes_that_it_moves(
  operation, num_bytes, result_elements
):
  kernel = _handwritten(f"""
    x = f32[64,16] parameter(0)
    u = f32[4,16] parameter(1)
    i = s32[] parameter(2)
    ROOT out = {operation}
  """)
  assert kernel.num_bytes == num_bytes
  assert kernel.result_elements == result_elements


def test_an_operand_read_both_whole_and_in_part_counts_once():
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


def test_an_async_fusion_moves_as_many_bytes_as_the_plain_fusion():
  fused = """
      part = f32[4,16] slice(p0), slice={[0:4],[0:16]}
      ROOT out = f32[4,16] negate(part)
  """
  plain = _fused(fused, "f32[64,16]", result="f32[4,16]")
  asynchronous = _handwritten(
    """
      x = f32[64,16] parameter(0)
      begin = ((f32[64,16]), f32[4,16]) fusion-start(x), kind=kLoop, calls=f
      ROOT out = f32[4,16] fusion-done(begin)
    """,
    computations=f"f {{\np0 = f32[64,16] parameter(0)\n{fused}\n}}\n",
  )
  assert plain.num_bytes == asynchronous.num_bytes == 2 * 4 * 64
  assert plain.category == asynchronous.category == "fusion"


def test_a_fusion_reads_only_elements_that_its_results_depend_on():
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


def test_a_matmul_along_a_missing_dimension_is_refused():
  module = hlo_text.load("""
    a = bf16[64,32] parameter(0)
    b = bf16[32,64] parameter(1)
    ROOT out = (bf16[64,64], s8[1024]) custom-call(a, b),
      custom_call_target="__cublas$lt$matmul",
      backend_config={"gemm_backend_config": {"dot_dimension_numbers":
        {"lhs_contracting_dimensions": ["7"],
          "rhs_contracting_dimensions": ["0"]}}}
  """)
  analysis = overlap.analyze(module)
  with pytest.raises(errors.HloError, match="with 2 dimensions lacks"):
    _ = analysis.kernels
