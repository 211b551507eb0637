# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The sizes of a program's values."""

from __future__ import annotations

from jax.interpreters import mlir
from jaxlib.mlir import ir
import pytest

from lagom_xla.passes.program import mlir as mlir_lib


@pytest.mark.parametrize(
  ("type_", "num_bytes"),
  [
    ("tensor<3x5xbf16>", 30),
    ("tensor<3x5xcomplex<f32>>", 120),
    ("tensor<3x5xi1>", 15),
    ("tensor<3x5xi4>", 8),
    ("tensor<f8E4M3FN>", 1),
    ("tensor<?xf32>", 0),
  ],
)
def test_a_tensor_is_as_large_as_xla_stores_it(
  type_: str, num_bytes: int
) -> None:
  text = f"func.func @f(%x: {type_}) {{ return }}"
  with mlir.make_ir_context():
    module = ir.Module.parse(text)
    (function,) = module.body.operations
    ((block,),) = function.regions
    (value,) = block.arguments
    assert mlir_lib.num_bytes(value) == num_bytes
