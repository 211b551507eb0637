# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The matrix products inside a kernel, by shape.

A kernel may hold them as `dot`s in a fusion, as a library call that keeps its
dimension numbers in backend_config, as a grouped product, or as a convolution,
which is a product in its implicit-GEMM form.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import math
from typing import Any

from lagom_xla.passes import hlo
from lagom_xla.passes.kernel_work import arithmetic as arithmetic_lib

CONVOLUTION_TARGETS = ("__cudnn$conv",)
# Instructions that may hold matrix products, in themselves or inside.
MULTIPLYING = frozenset(
  [
    "async-start",
    "convolution",
    "custom-call",
    "dot",
    "fusion",
    "ragged-dot",
    "scaled-dot",
  ]
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class MatrixProduct:
  """[batch, m, k] by [batch, k, n], with the HLO element type of the left.

  `arithmetic` says what of them is multiplied.
  """

  batch: int
  m: int
  n: int
  k: int
  element_type: str
  arithmetic: arithmetic_lib.Arithmetic

  @property
  def flops(self) -> int:
    """Floating-point operations, two for each multiply-add of reals."""
    per_pair = 8 if self.element_type in arithmetic_lib.PARTS else 2
    return per_pair * self.batch * self.m * self.n * self.k


def of_instruction(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
) -> list[MatrixProduct]:
  """The matrix products that one kernel computes."""
  match instruction.opcode:
    case "dot" | "scaled-dot":
      numbers = instruction.dot_dimension_numbers
      return [
        _product(
          *(o.shape for o in computation.operands(instruction)[:2]),
          lhs_contracting=list(numbers.lhs_contracting_dimensions),
          lhs_batch=list(numbers.lhs_batch_dimensions),
          precision=instruction.precision_config,
        )
      ]
    case "ragged-dot":
      return [_grouped_product(computation, instruction)]
    case "convolution":
      return [_convolution(computation, instruction)]
    case "custom-call":
      config = module.backend_config(instruction)
      return _library_product(computation, instruction, config)
    case "fusion" | "async-start":
      callees = (
        module.computations[i] for i in instruction.called_computation_ids
      )
      return [
        product
        for callee in callees
        if not callee.opcodes.isdisjoint(MULTIPLYING)
        for inner in callee.instructions
        for product in of_instruction(module, callee, inner)
      ]
  return []


def _library_product(
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  config: Mapping[str, Any],
) -> list[MatrixProduct]:
  """The product of a cuBLAS or cuDNN call."""
  if instruction.custom_call_target.startswith(CONVOLUTION_TARGETS):
    return [_convolution(computation, instruction)]
  if "grouped_gemm_backend_config" in config:
    return [_grouped_product(computation, instruction)]
  gemm = config.get("gemm_backend_config", {})
  numbers = gemm.get("dot_dimension_numbers")
  if numbers is None:
    return []
  lhs, rhs = (o.shape for o in computation.operands(instruction)[:2])
  return [
    _product(
      lhs,
      rhs,
      lhs_contracting=[
        int(d) for d in numbers.get("lhs_contracting_dimensions", [])
      ],
      lhs_batch=[int(d) for d in numbers.get("lhs_batch_dimensions", [])],
      precision=gemm.get("precision_config", {}),
    )
  ]


def _product(
  lhs: hlo.Shape,
  rhs: hlo.Shape,
  *,
  lhs_contracting: list[int],
  lhs_batch: list[int],
  precision: arithmetic_lib.Precision,
) -> MatrixProduct:
  k = math.prod(lhs.dimensions[d] for d in lhs_contracting)
  batch = math.prod(lhs.dimensions[d] for d in lhs_batch)
  shared = max(k * batch, 1)
  return MatrixProduct(
    batch=batch,
    m=math.prod(lhs.dimensions) // shared,
    n=math.prod(rhs.dimensions) // shared,
    k=k,
    element_type=hlo.element_type(lhs),
    arithmetic=arithmetic_lib.of(hlo.element_type(lhs), precision),
  )


def _grouped_product(
  computation: hlo.Computation, instruction: hlo.Instruction
) -> MatrixProduct:
  """[m, k] by [groups, k, n], where each row meets one group."""
  lhs, rhs = (o.shape for o in computation.operands(instruction)[:2])
  return MatrixProduct(
    batch=1,
    m=math.prod(lhs.dimensions[:-1]),
    n=rhs.dimensions[-1],
    k=lhs.dimensions[-1],
    element_type=hlo.element_type(lhs),
    arithmetic=arithmetic_lib.of(hlo.element_type(lhs), {}),
  )


def _convolution(
  computation: hlo.Computation, instruction: hlo.Instruction
) -> MatrixProduct:
  """A convolution as the matrix product of its implicit-GEMM form."""
  result = instruction.shape
  while result.tuple_shapes:
    result = result.tuple_shapes[0]
  lhs, kernel = (o.shape for o in computation.operands(instruction)[:2])
  output = result
  if instruction.custom_call_target.endswith("BackwardFilter"):
    kernel, output = result, kernel
  elif instruction.custom_call_target.endswith("BackwardInput"):
    output = lhs
  numbers = instruction.convolution_dimension_numbers
  features = kernel.dimensions[numbers.kernel_output_feature_dimension]
  return MatrixProduct(
    batch=1,
    m=math.prod(output.dimensions) // max(features, 1),
    n=features,
    k=math.prod(kernel.dimensions) // max(features, 1),
    element_type=hlo.element_type(lhs),
    arithmetic=arithmetic_lib.of(
      hlo.element_type(lhs), instruction.precision_config
    ),
  )
