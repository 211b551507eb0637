# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Products in library calls count as XLA's own, in compiled modules.

Transformer Engine's calls are those of its JAX extension
(transformer_engine/jax/cpp_extensions/gemm.py), of which XLA only sees the
names before the calls run.
"""

from __future__ import annotations

from collections.abc import Sequence
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import pytest

import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels
from lagom_xla.passes import overlap

_H100S = cluster_lib.parse("1x8xh100")
_BF16, _F8, _F32 = jnp.bfloat16, jnp.float8_e4m3fn, jnp.float32
_NONE = ((0,), _BF16)  # Placeholder for an array that a call does not need.
_SCALAR = ((1,), _F32)
_WORKSPACE = ((33_554_432,), jnp.uint8)

Array = tuple[tuple[int, ...], Any]


class _Steps:
  """Steps of one call, compiled for eight GPUs."""

  def __init__(self, devices: Sequence[jax.Device], scheduled: Any):
    mesh = Mesh(devices, ("x",))
    self.everywhere = NamedSharding(mesh, PartitionSpec())
    self._scheduled = scheduled

  def of(self, function: Any, operands: Sequence[Array]) -> step_lib.Step:
    arguments = [
      jax.ShapeDtypeStruct(shape, dtype, sharding=self.everywhere)
      for shape, dtype in operands
    ]
    module = self._scheduled(jax.jit(function).lower(*arguments))
    return step_lib.Step(overlap.analyze(module), _H100S)

  def call(
    self,
    target: str,
    operands: Sequence[Array],
    results: Sequence[Array],
    **attributes: Any,
  ) -> step_lib.Step:
    call = jax.ffi.ffi_call(
      target,
      [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in results],
    )
    return self.of(lambda *given: call(*given, **attributes)[0], operands)


@pytest.fixture(scope="module")
def steps(h100s, scheduled) -> _Steps:
  return _Steps(h100s, scheduled)


def _product(step: step_lib.Step) -> kernels.Kernel:
  """The one product of a step."""
  (found,) = (k for k in step.analysis.kernels.values() if k.category == "gemm")
  return found


def _us(m: int, n: int, k: int, element_type: str = "bf16") -> float:
  """Time of a lone cuBLAS product with a bf16 result."""
  module = hlo_text.load(f"""
    a = {element_type}[{m},{k}] parameter(0)
    b = {element_type}[{k},{n}] parameter(1)
    ROOT out = (bf16[{m},{n}], s8[1024]) custom-call(a, b),
      custom_call_target="__cublas$lt$matmul",
      backend_config={{"gemm_backend_config": {{"dot_dimension_numbers":
        {{"lhs_contracting_dimensions": ["1"],
          "rhs_contracting_dimensions": ["0"]}}}}}}
  """)
  (kernel,) = overlap.analyze(module).kernels.values()
  return kernel_lib.predict(kernel, _H100S.gpu).time_us


def _config(
  lhs_axis_boundary: int = 1,
  *,
  lhs_transposed: bool = False,
  scaling_mode: int = 0,
  collective_op: int = 0,
) -> dict[str, Any]:
  return {
    "scaling_mode": scaling_mode,
    "collective_op": collective_op,
    "lhs_axis_boundary": lhs_axis_boundary,
    "rhs_axis_boundary": 1,
    "lhs_transposed": lhs_transposed,
    "rhs_transposed": False,
    "use_split_accumulator": False,
  }


@pytest.mark.parametrize("is_old", [False, True], ids=["v2", "v1"])
@pytest.mark.parametrize(
  ("lhs", "rhs", "out", "config", "mnk"),
  [
    # Tokens by features, of two sequences, into two gates at once.
    pytest.param(
      *((2, 1024, 4096), (4096, 2, 2048), (2, 1024, 2, 2048)),
      *(_config(2), (2048, 4096, 4096)),
      id="forward",
    ),
    # The gradient of a weight sums over tokens.
    pytest.param(
      *((2, 1024, 4096), (2, 1024, 2048), (4096, 2048)),
      *(_config(2, lhs_transposed=True), (4096, 2048, 2048)),
      id="gradient",
    ),
  ],
)
def test_a_transformer_engine_gemm_costs_the_same_as_cublas(
  steps, is_old, lhs, rhs, out, config, mnk
):
  operands = [(lhs, _BF16), _NONE, (rhs, _BF16), _NONE, _NONE]
  if is_old:
    more = {"fuse_bias": False, "fuse_gelu": False, "grad": False}
    step = steps.call(
      "te_gemm_ffi",
      [*operands, _NONE, _SCALAR, _SCALAR],
      [(out, _BF16), _NONE, _NONE, _WORKSPACE],
      **config,
      **more,
    )
  else:
    step = steps.call(
      "te_gemm_v2_ffi",
      [*operands, _SCALAR, _SCALAR],
      [(out, _BF16), _WORKSPACE],
      config=config,
    )
  kernel, (m, n, k) = _product(step), mnk
  assert kernel.flops == 2 * m * n * k
  assert step.kernel_cost(kernel).time_us == pytest.approx(_us(m, n, k), 0.02)
  assert not step.unknown_calls
  assert not step.calls_that_may_communicate


def test_a_gemm_without_attributes_contracts_the_shared_dimension(steps):
  step = steps.call(
    "te_gemm_ffi",
    [((2, 1024, 4096), _BF16), ((4096, 16, 128), _BF16)],
    [((2, 1024, 16, 128), _BF16)],
  )
  assert _product(step).flops == 2 * 2048 * 4096 * 2048


def test_scales_of_an_operand_are_not_taken_for_the_other_operand(steps):
  scales = ((4096, 128), jnp.float8_e8m0fnu)
  square = ((4096, 4096), _F8)
  step = steps.call(
    "te_gemm_v2_ffi",
    [square, scales, square, scales, _NONE, _SCALAR, _SCALAR],
    [((4096, 4096), _BF16), _WORKSPACE],
    config=_config(scaling_mode=3),
  )
  kernel = _product(step)
  assert kernel.flops == 2 * 4096**3
  assert kernel.element_type == "f8e4m3fn"
  expected_us = _us(4096, 4096, 4096, "f8e4m3fn")
  assert step.kernel_cost(kernel).time_us == pytest.approx(expected_us, 0.02)


@pytest.mark.parametrize(
  ("op", "rows", "out_rows"), [(1, 512, 4096), (2, 4096, 512)]
)
def test_a_gemm_with_a_collective_counts_all_rows_and_is_reported(
  steps, op, rows, out_rows
):
  step = steps.call(
    "te_gemm_v2_ffi",
    [
      *(((rows, 1024), _BF16), _NONE, ((1024, 2048), _BF16), _NONE, _NONE),
      *(_SCALAR, _SCALAR),
    ],
    [((out_rows, 2048), _BF16), _WORKSPACE],
    config=_config(collective_op=op),
  )
  assert _product(step).flops == 2 * 4096 * 1024 * 2048
  assert [*step.calls_that_may_communicate.values()] == ["te_gemm_v2_ffi"]


_SIZES = ((8,), jnp.int32)
_NO_SIZES = ((0,), jnp.int32)


@pytest.mark.parametrize("is_graph_safe", [False, True], ids=["v1", "v2"])
@pytest.mark.parametrize("is_gradient", [False, True])
def test_a_grouped_product_multiplies_each_row_by_one_groups_matrix(
  steps, is_graph_safe, is_gradient
):
  # 4096 rows of 1024, in 8 groups of rows, to 2048: operands are flat.
  rhs = (4096, 2048) if is_gradient else (8 * 1024, 2048)
  out = (8, 1024, 2048) if is_gradient else (4096, 2048)
  sizes = [_SIZES, _NO_SIZES, _NO_SIZES, _NO_SIZES, _NO_SIZES, _NO_SIZES]
  target, more, scratch = "te_grouped_gemm_ffi", [((1,), jnp.int32)], 1
  if is_graph_safe:
    target, more, scratch = "te_grouped_gemm_v2_ffi", [((8,), _F32)] * 2, 3
  step = steps.call(
    target,
    [
      *(((4096 * 1024,), _BF16), ((0,), _F32)),
      *(((rhs[0] * rhs[1],), _BF16), ((0,), _F32), _NONE),
      *sizes,
      *more,
    ],
    [(out, _BF16), *[_WORKSPACE] * scratch],
    lhs_is_trans=is_gradient,
    rhs_is_trans=False,
    scaling_mode=0,
    lhs_axis_boundary=1,
    rhs_axis_boundary=1,
    lhs_left_size=4096,
    lhs_right_size=1024,
    rhs_left_size=rhs[0],
    rhs_right_size=rhs[1],
  )
  kernel = _product(step)
  assert kernel.flops == 2 * 4096 * 1024 * 2048
  assert kernel.matrix_shape == (
    (8, 1024, 2048, 512) if is_gradient else (1, 4096, 2048, 1024)
  )
  # Scratch memory is not traffic.
  shapes = (4096 * 1024, rhs[0] * rhs[1], 8 * 1024 * 2048 if is_gradient else 0)
  assert kernel.num_bytes < 2 * sum(shapes) + 2 * 4096 * 2048 + 1000


def test_jaxs_block_scaled_dot_counts_as_a_product(steps):
  square = ((1, 4096, 4096), _F8)
  scales = ((1, 4096, 128), jnp.float8_e8m0fnu)
  step = steps.of(
    lambda a, b, c, d: jax.nn.scaled_matmul(a, b, c, d),
    [square, square, scales, scales],
  )
  products = [k for k in step.analysis.kernels.values() if k.category == "gemm"]
  assert sum(k.flops for k in products) == 2 * 4096**3
  assert not step.unknown_calls


@pytest.mark.parametrize("batch", ["", "1,", "4,", "2,3,"])
@pytest.mark.parametrize(
  "target",
  ["__cudnn$blockScaledDot", "__op$block_scaled_dot", "my_matmul", "scaled_mm"],
)
def test_a_call_with_the_name_and_shapes_of_a_product_counts_as_one(
  target, batch
):
  kernel = _handwritten(
    target,
    [f"f8e4m3fn[{batch}512,256]", f"f8e5m2[{batch}1024,256]"],
    [f"f8e8m0fnu[{batch}512,8]", f"f8e8m0fnu[{batch}1024,8]"],
    f"bf16[{batch}512,1024]",
  )
  num_batches = math.prod(int(size) for size in batch.split(",") if size)
  assert kernel.flops == 2 * num_batches * 512 * 1024 * 256
  assert kernel.category == "gemm"


def test_a_four_bit_product_with_eight_bit_scales_has_four_bit_type():
  kernel = _handwritten(
    "te_gemm_v2_ffi",
    ["f4e2m1fn[4096,4096]", "f8e4m3fn[4096,256]"],
    ["f4e2m1fn[4096,4096]", "f8e4m3fn[4096,256]"],
    "bf16[4096,4096]",
  )
  assert kernel.flops == 2 * 4096**3
  assert kernel.element_type == "f4e2m1fn"


@pytest.mark.parametrize(
  ("target", "out"),
  [
    ("gemm_norms", "bf16[512]"),
    ("te_grouped_gemm_d2h_group_sizes_ffi", "s32[8]"),
  ],
)
def test_a_call_without_the_shapes_of_a_product_is_not_one(target, out):
  kernel = _handwritten(target, ["s32[8]"], ["bf16[512,256]"], out)
  assert (kernel.category, kernel.flops) == ("other", 0)


def _handwritten(
  target: str, first: list[str], second: list[str], out: str
) -> kernels.Kernel:
  given = [*first, *second]
  parameters = [f"p{i} = {t} parameter({i})" for i, t in enumerate(given)]
  names = ", ".join(f"p{i}" for i in range(len(given)))
  module: hlo.Module = hlo_text.load(
    "\n".join(parameters)
    + f'\nROOT out = {out} custom-call({names}), custom_call_target="{target}"'
  )
  (kernel,) = overlap.analyze(module).kernels.values()
  return kernel
