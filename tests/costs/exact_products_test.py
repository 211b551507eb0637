# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Products take as long as what their precision has the GPU multiply."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo

_H100 = cluster_lib.parse("1x1xh100")
_PEAK_TFLOPS = 66.9  # NVIDIA's data sheet, FP32.

Scheduled = Callable[..., hlo.Module]


def _time_us(
  devices: Sequence[jax.Device],
  scheduled: Scheduled,
  product: Callable[[jax.Array, jax.Array], jax.Array],
  shapes: Sequence[tuple[int, ...]],
  dtype: jnp.dtype,
  **options: bool,
) -> float:
  """The run time of the product's kernel, with all that is around it."""
  place = jax.sharding.SingleDeviceSharding(devices[0])
  lhs, rhs = (
    jax.ShapeDtypeStruct(shape, dtype, sharding=place) for shape in shapes
  )
  module = scheduled(jax.jit(product).lower(lhs, rhs), **options)
  step = step_lib.of_module(module, _H100)
  return max(
    step.kernel_cost(kernel).run_us
    for kernel in step.analysis.kernels.values()
    if kernel.flops
  )


@pytest.mark.parametrize("triton", [True, False], ids=["triton", "cublas"])
def test_a_matrix_product(
  h100s: Sequence[jax.Device], scheduled: Scheduled, triton: bool
) -> None:
  def time_us(precision: str, dtype: jnp.dtype) -> float:
    return _time_us(
      h100s,
      scheduled,
      lambda lhs, rhs: jnp.dot(lhs, rhs, precision=precision),
      [(4096, 4096), (4096, 4096)],
      dtype,
      xla_gpu_enable_triton_gemm=triton,
    )

  least_us = 2 * 4096**3 / (_PEAK_TFLOPS * 1e6)
  f32, bf16 = jnp.dtype("float32"), jnp.dtype("bfloat16")
  assert time_us("highest", f32) == pytest.approx(least_us)
  assert time_us("F32_F32_F32", f32) == pytest.approx(least_us)
  assert time_us("default", f32) < least_us / 4
  # Tensor cores take all bits of these.
  assert time_us("highest", bf16) == time_us("default", bf16)
  # Of complex numbers each part meets each.
  c64 = jnp.dtype("complex64")
  assert time_us("highest", c64) == pytest.approx(4 * least_us)
  assert time_us("default", c64) == pytest.approx(4 * time_us("default", f32))


def test_a_product_of_numbers_in_three_parts(
  h100s: Sequence[jax.Device], scheduled: Scheduled
) -> None:
  def time_us(precision: str, dtype: str) -> float:
    return _time_us(
      h100s,
      scheduled,
      lambda lhs, rhs: jnp.dot(lhs, rhs, precision=precision),
      [(4096, 4096), (4096, 4096)],
      jnp.dtype(dtype),
    )

  bf16_us = time_us("default", "bfloat16")
  assert time_us("BF16_BF16_F32_X3", "float32") == pytest.approx(3 * bf16_us)
  tf32_us = time_us("default", "float32")
  assert time_us("TF32_TF32_F32_X3", "float32") == pytest.approx(3 * tf32_us)


def test_a_convolution(
  h100s: Sequence[jax.Device], scheduled: Scheduled
) -> None:
  def time_us(precision: str) -> float:
    return _time_us(
      h100s,
      scheduled,
      lambda image, kernel: jax.lax.conv_general_dilated(
        image,
        kernel,
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        precision=precision,
      ),
      [(64, 32, 32, 256), (3, 3, 256, 256)],
      jnp.dtype("float32"),
    )

  least_us = 2 * 64 * 32 * 32 * 9 * 256 * 256 / (_PEAK_TFLOPS * 1e6)
  assert time_us("highest") == pytest.approx(least_us)
  assert time_us("default") < least_us / 4
