# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What kernels do, counted by hand from the shapes of what was compiled."""

from __future__ import annotations

from collections.abc import Sequence
import json

import jax
from jax._src.cudnn import fused_attention_stablehlo as fused_attention
import jax.numpy as jnp
from jaxlib.mlir import ir
import pytest

import compiled_kernels
from lagom_xla.passes import kernels
from lagom_xla.passes import overlap

_CUBLAS = {"xla_gpu_enable_triton_gemm": False}
_TRITON = {"xla_gpu_enable_triton_gemm": True}

Compile = compiled_kernels.Compile


@pytest.fixture(scope="module")
def compiled(h100s, scheduled) -> Compile:
  """Compiles a function of bf16 arrays and returns its kernels."""
  return compiled_kernels.compiling(h100s, scheduled)


def _gemm_flops(found: Sequence[kernels.Kernel]) -> int:
  return sum(k.flops * k.executions for k in found if k.category == "gemm")


def _call(
  target: str, config: str, given: Sequence[str], result: str
) -> kernels.Kernel:
  """A library call, beside whose result is its scratch memory."""
  names = [f"p{i}" for i in range(len(given))]
  parameters = (
    f"p{i} = {shape} parameter({i})" for i, shape in enumerate(given)
  )
  return compiled_kernels.handwritten(
    "\n".join(parameters)
    + f"\nROOT out = ({result}, u8[1000]) custom-call({', '.join(names)}),"
    f' custom_call_target="{target}"{config}'
  )


def _attention(
  target: str, config: str, query: str, key: str
) -> kernels.Kernel:
  q, k = f"bf16[{query}]", f"bf16[{key}]"
  return _call(target, config, [q, k, k], q)


def _typed_ffi(attributes: dict[str, int]) -> str:
  """As Transformer Engine's calls have their attributes."""
  listed = ", ".join(f"{name} = {n} : i64" for name, n in attributes.items())
  return f", api_version=API_VERSION_TYPED_FFI, backend_config={{{listed}}}"


@pytest.mark.parametrize(
  "options", [_TRITON, _CUBLAS], ids=["triton", "cublas"]
)
@pytest.mark.parametrize(
  ("equation", "lhs", "rhs", "flops"),
  [
    ("ki,jk->ij", (512, 256), (1024, 512), 2 * 256 * 512 * 1024),
    ("bik,bkj->bij", (4, 256, 512), (4, 512, 64), 2 * 4 * 256 * 512 * 64),
    ("bqhd,bkhd->bhqk", (2, 64, 4, 32), (2, 64, 4, 32), 2 * 8 * 64 * 64 * 32),
    ("abk,kcd->abcd", (8, 32, 128), (128, 16, 64), 2 * 256 * 128 * 1024),
  ],
)
def test_a_matrix_product_takes_two_operations_per_multiply(
  compiled, options, equation, lhs, rhs, flops
):
  found = compiled(lambda a, b: jnp.einsum(equation, a, b), lhs, rhs, **options)
  assert _gemm_flops(found) == flops
  (gemm,) = (k for k in found if k.category == "gemm")
  assert gemm.element_type == "bf16"
  assert gemm.matrix_shape is not None
  batch, m, n, k = gemm.matrix_shape
  assert 2 * batch * m * n * k == flops


def test_a_library_calls_scratch_memory_is_no_result(compiled):
  (gemm,) = compiled(jnp.matmul, (256, 512), (512, 1024), **_CUBLAS)
  assert gemm.category == "gemm"
  assert gemm.matrix_shape == (1, 256, 1024, 512)
  assert gemm.result_elements == 256 * 1024
  assert gemm.num_bytes == 2 * (256 * 512 + 512 * 1024 + 256 * 1024)


@pytest.mark.parametrize(
  "options", [_TRITON, _CUBLAS], ids=["triton", "cublas"]
)
@pytest.mark.parametrize("kind", ["scan", "unrolled", "tensor parallel"])
def test_a_train_steps_products_are_those_of_its_layers(
  scheduled, fsdp_step, tp_step, sizes, options, kind
):
  is_tp = kind == "tensor parallel"
  # Of an eighth of the rows, or of an eighth of each layer.
  layer = 2 * sizes["rows"] * sizes["width"] * sizes["hidden"] // 8
  head = 2 * sizes["rows"] * sizes["width"] * sizes["classes"]
  # Forward, gradient of the input, gradient of the weight.
  expected = 3 * (sizes["layers"] * 2 * layer + head // (1 if is_tp else 8))
  if kind == "unrolled":  # XLA sees that nobody wants the data's gradient.
    expected -= layer
  lowered = tp_step if is_tp else fsdp_step(unroll=kind == "unrolled")
  found = compiled_kernels.of_module(scheduled(lowered, **options))
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


def test_a_fusion_of_two_products_has_the_operations_of_both():
  kernel = compiled_kernels.handwritten(
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


def test_a_convolution_and_its_gradients_cost_the_same(compiled):
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
    # One that tells its mask alone is counted by its shapes, too.
    ("forward", 64, _typed_ffi({"mask_type": 2}), 2),
  ],
)
def test_fused_attention_is_its_products_halved_by_a_causal_mask(
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
def test_cudnns_attention_multiplies_what_its_mask_leaves(
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
def test_transformer_engines_attention_multiplies_what_its_mask_leaves(
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


def test_what_takes_no_time_on_the_gpu_is_no_kernel():
  kernel = compiled_kernels.handwritten("""
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
