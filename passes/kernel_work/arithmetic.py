# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a GPU multiplies for a matrix product: which numbers, and how often.

XLA multiplies f32 by tensor cores, as TF32, unless the program asks for more:
jax.lax.Precision.HIGHEST and the algorithm F32_F32_F32 take all bits, which no
tensor core does. Algorithms such as BF16_BF16_F32_X3 cut each number in parts
of fewer bits, and multiply those. Complex numbers are pairs of reals of half
their bits, by the same rules (GetBlasComputationType).
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
from typing import Any

from lagom_xla.passes import hlo_pb2

# A precision as an instruction has it, or as the JSON of a library call.
Precision = hlo_pb2.PrecisionConfig | Mapping[str, Any]

# Complex types and their parts.
PARTS = {"c64": "f32", "c128": "f64"}


@dataclasses.dataclass(frozen=True, slots=True)
class Arithmetic:
  """What is multiplied.

  Attributes:
    element_type: HLO type of the reals that are multiplied.
    times: products of them that make one product of the operands' reals.
    is_exact: whether they are f32 of which all bits count.
  """

  element_type: str
  times: int = 1
  is_exact: bool = False


# XLA's PrecisionConfig: HIGHEST, and its algorithms by number and name.
_HIGHEST = (2, "HIGHEST")
_EXACT = Arithmetic("f32", is_exact=True)
_ALGORITHMS = {
  (3, "ALG_DOT_F16_F16_F16"): Arithmetic("f16"),
  (4, "ALG_DOT_F16_F16_F32"): Arithmetic("f16"),
  (5, "ALG_DOT_BF16_BF16_BF16"): Arithmetic("bf16"),
  (6, "ALG_DOT_BF16_BF16_F32"): Arithmetic("bf16"),
  (7, "ALG_DOT_BF16_BF16_F32_X3"): Arithmetic("bf16", 3),
  (8, "ALG_DOT_BF16_BF16_F32_X6"): Arithmetic("bf16", 6),
  (9, "ALG_DOT_TF32_TF32_F32"): Arithmetic("f32"),
  (10, "ALG_DOT_TF32_TF32_F32_X3"): Arithmetic("f32", 3),
  (11, "ALG_DOT_F32_F32_F32"): _EXACT,
  (12, "ALG_DOT_F64_F64_F64"): Arithmetic("f64"),
  (13, "ALG_DOT_BF16_BF16_F32_X9"): Arithmetic("bf16", 9),
}
_BY_NAME = {key: value for keys, value in _ALGORITHMS.items() for key in keys}


def of(element_type: str, precision: Precision) -> Arithmetic:
  """What is multiplied for operands of an HLO type."""
  if isinstance(precision, hlo_pb2.PrecisionConfig):
    asked, algorithm = precision.operand_precision, precision.algorithm
  else:
    asked = precision.get("operand_precision", ())
    algorithm = precision.get("algorithm")
  real = PARTS.get(element_type, element_type)
  if algorithm in _BY_NAME:
    return _BY_NAME[algorithm]
  if real == "f32" and not set(_HIGHEST).isdisjoint(asked):
    return _EXACT
  return Arithmetic(real)
