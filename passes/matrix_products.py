# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Matrix products inside a kernel: their shapes, number types and counts.

XLA multiplies f32 on tensor cores, as TF32, unless the program asks for more.
jax.lax.Precision.HIGHEST and the algorithm F32_F32_F32 use all bits, which
tensor cores cannot. Algorithms such as BF16_BF16_F32_X3 split each number into
parts of fewer bits and multiply those. Complex numbers are pairs of reals, to
which the same rules apply (GetBlasComputationType).

A product in a kernel is a `dot` in a fusion, a library call with its dimension
numbers in backend_config, a grouped product, or a convolution in its
implicit-GEMM form.

Calls to other libraries are recognized as products by their names: Transformer
Engine's (transformer_engine/jax/cpp_extensions/gemm.py), block-scaled dots, and
others. Scales that follow an operand have another number type. The contracted
dimensions come from Transformer Engine's attributes, or else from the numbers
of elements of operands and result.

Fused attention multiplies queries, keys and values in one library call. The
call's attributes give the number of scores and the mask: cuDNN's config
(written by JAX's fused_attention_stablehlo.py), or Transformer Engine's
attributes, which number masks as NVTE_Mask_Type does
(transformer_engine/fused_attn.h). Other calls only show shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
import dataclasses
import math
import re
from typing import Any

from lagom_xla import errors
from lagom_xla.passes import hlo
from lagom_xla.passes import hlo_pb2
from lagom_xla.passes import library_calls

# The precision of an instruction, or in the JSON of a library call.
Precision = hlo_pb2.PrecisionConfig | Mapping[str, Any]

# Complex types and their parts.
PARTS = {"c64": "f32", "c128": "f64"}


@dataclasses.dataclass(frozen=True, slots=True)
class Arithmetic:
  """The arithmetic of a product.

  Attributes:
    element_type: HLO type of the multiplied reals.
    times: products of such reals per product of the operands' reals.
    is_exact: whether the reals are f32 with all bits.
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


def arithmetic_of(element_type: str, precision: Precision) -> Arithmetic:
  """The arithmetic of a product with operands of an HLO type."""
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


CONVOLUTION_TARGETS = ("__cudnn$conv",)
# Instructions that may be or hold matrix products.
MULTIPLYING = frozenset([
  "async-start", "convolution", "custom-call", "dot", "fusion", "ragged-dot",
  "scaled-dot",
])  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class MatrixProduct:
  """A product [batch, m, k] by [batch, k, n].

  The HLO type is the left operand's.
  """

  batch: int
  m: int
  n: int
  k: int
  element_type: str
  arithmetic: Arithmetic

  @property
  def flops(self) -> int:
    """Floating-point operations; a multiply-add of reals counts as two."""
    per_pair = 8 if self.element_type in PARTS else 2
    return per_pair * self.batch * self.m * self.n * self.k


def of_instruction(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
) -> list[MatrixProduct]:
  """The matrix products that one kernel computes."""
  shapes = (operand.shape for operand in computation.operands(instruction))
  match instruction.opcode:
    case "dot" | "scaled-dot":
      numbers = instruction.dot_dimension_numbers
      return [
        _product(
          next(shapes),
          next(shapes),
          contracting=numbers.lhs_contracting_dimensions,
          batch=numbers.lhs_batch_dimensions,
          precision=instruction.precision_config,
        )
      ]
    case "ragged-dot":
      return [_grouped_product(next(shapes), next(shapes))]
    case "convolution":
      return [_convolution(next(shapes), next(shapes), instruction)]
    case "custom-call":  # Of cuBLAS or cuDNN.
      config = module.backend_config(instruction)
      gemm = config.get("gemm_backend_config", {})
      numbers = gemm.get("dot_dimension_numbers")
      if instruction.custom_call_target.startswith(CONVOLUTION_TARGETS):
        return [_convolution(next(shapes), next(shapes), instruction)]
      if "grouped_gemm_backend_config" in config:
        return [_grouped_product(next(shapes), next(shapes))]
      if numbers is None:
        return _named_product(module, instruction, list(shapes))
      return [
        _product(
          next(shapes),
          next(shapes),
          contracting=map(int, numbers.get("lhs_contracting_dimensions", [])),
          batch=map(int, numbers.get("lhs_batch_dimensions", [])),
          precision=gemm.get("precision_config", {}),
        )
      ]
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


def _product(
  lhs: hlo.Shape,
  rhs: hlo.Shape,
  *,
  contracting: Iterable[int],
  batch: Iterable[int],
  precision: Precision,
) -> MatrixProduct:
  """A product, given the left operand's contracting and batch dimensions."""
  summed, batched = list(contracting), list(batch)
  rank = len(lhs.dimensions)
  if any(d not in range(rank) for d in summed + batched):
    raise errors.HloError(
      "The module is damaged: a matmul names a dimension that its first operand"
      f" with {rank} dimensions lacks."
    )
  k = math.prod(lhs.dimensions[d] for d in summed)
  num_batches = math.prod(lhs.dimensions[d] for d in batched)
  shared = max(k * num_batches, 1)
  return MatrixProduct(
    batch=num_batches,
    m=math.prod(lhs.dimensions) // shared,
    n=math.prod(rhs.dimensions) // shared,
    k=k,
    element_type=hlo.element_type(lhs),
    arithmetic=arithmetic_of(hlo.element_type(lhs), precision),
  )


def _grouped_product(lhs: hlo.Shape, rhs: hlo.Shape) -> MatrixProduct:
  """[m, k] by [groups, k, n], where each row is multiplied by one group."""
  return MatrixProduct(
    batch=1,
    m=math.prod(lhs.dimensions[:-1]),
    n=rhs.dimensions[-1],
    k=lhs.dimensions[-1],
    element_type=hlo.element_type(lhs),
    arithmetic=arithmetic_of(hlo.element_type(lhs), {}),
  )


_MULTIPLIES = re.compile(
  r"gemm|mat_?mul|(?:scaled|ragged|grouped)_?dot|(?:^|_)b?mm(?:_|$)",
  re.IGNORECASE,
)
_SCALES = "f8e8m0fnu"


def _named_product(
  module: hlo.Module, call: hlo.Instruction, operands: list[hlo.Shape]
) -> list[MatrixProduct]:
  """The product that a library call computes, judging by name and shapes."""
  target = call.custom_call_target
  if not _MULTIPLIES.search(target) or not operands:
    return []
  lhs, result = operands[0], hlo.first_array(call.shape)
  rhs = next((o for o in operands[1:] if _is_factor(o, lhs)), None)
  if rhs is None:
    return []
  attributes = library_calls.attributes(module, call)
  num_lhs, num_rhs, num_out = map(hlo.num_elements, (lhs, rhs, result))
  if "lhs_left_size" in attributes:  # Quantized operands may be padded.
    num_lhs = attributes["lhs_left_size"] * attributes["lhs_right_size"]
    num_rhs = attributes["rhs_left_size"] * attributes["rhs_right_size"]
  groups = batch = 1
  if "group" in target.lower():
    groups = _num_groups(lhs, operands[1:], result)
  k = _summed(lhs, attributes)
  if k is None:
    batch = 1 if groups > 1 else _num_batches(lhs, rhs, result)
    if not batch:
      return []
    sums, shared = num_lhs * num_rhs, num_out * batch * groups
    if groups > 1 and len(result.dimensions) > len(lhs.dimensions):
      sums, shared = sums * groups, num_out  # Rows are summed by group.
    k = math.isqrt(sums // max(shared, 1))
    if k * k * shared != sums:
      return []
  if not k or num_lhs % (batch * k) or num_rhs % (batch * k):
    return []
  m, n = num_lhs // (batch * k), num_rhs // (batch * k)
  if attributes.get("collective_op", 0):
    m = max(m, num_out // n)  # It gathers rows before, or scatters them after.
  elif groups > 1 and m * n == num_out * groups:  # A matrix for each group.
    n //= groups
  elif groups > 1 and m * n * groups == num_out:  # Rows are summed by group.
    batch, k = groups, max(k // groups, 1)
  elif batch * m * n != num_out:
    return []
  element_type = hlo.element_type(lhs)
  return [
    MatrixProduct(
      batch=batch,
      m=m,
      n=n,
      k=k,
      element_type=element_type,
      arithmetic=arithmetic_of(element_type, {}),
    )
  ]


def _is_factor(operand: hlo.Shape, lhs: hlo.Shape) -> bool:
  """Whether an operand is the other factor of a product, not scales."""
  own, other = hlo.element_type(operand), hlo.element_type(lhs)
  # f8e4m3fn and f8e5m2 are multiplied by each other; integers index groups.
  is_alike = own[:2] == other[:2] and own[0] in "bfs" and own != _SCALES
  return is_alike and hlo.num_elements(operand) > 1


def _num_groups(
  lhs: hlo.Shape, operands: list[hlo.Shape], result: hlo.Shape
) -> int:
  """The number of groups, from their sizes or else from their matrices."""
  for operand in operands:
    is_sizes = hlo.element_type(operand) in ("s32", "s64", "u32")
    if is_sizes and len(operand.dimensions) == 1 and operand.dimensions[0]:
      return operand.dimensions[0]
  for shape in (*operands, result):
    if len(shape.dimensions) > len(lhs.dimensions):
      return shape.dimensions[0]
  return 1


def _num_batches(lhs: hlo.Shape, rhs: hlo.Shape, result: hlo.Shape) -> int:
  """The number of batches; 0 if the shapes do not determine it."""
  rows, columns, both = (tuple(s.dimensions) for s in (lhs, rhs, result))
  for num in range(1, min(len(rows), len(columns))):  # Contracted dimensions.
    if rows[-num:] == columns[:num] and both == rows[:-num] + columns[num:]:
      return 1
  leading = {shape[:-2] for shape in (rows, columns, both)}
  if len(leading) == 1:
    return math.prod(leading.pop())
  return int(min(len(lhs.dimensions), len(rhs.dimensions)) <= 2)


def _summed(lhs: hlo.Shape, attributes: Mapping[str, int]) -> int | None:
  """The contracted size by Transformer Engine's attributes; None without any.

  For a transposed operand, the dimensions before the axis boundary are
  contracted. The attributes of a grouped product give the sizes of both sides,
  because quantized operands are flat, or K in older versions.
  """
  if "lhs_left_size" in attributes:
    is_left = attributes.get("lhs_is_trans", 0)
    return attributes["lhs_left_size" if is_left else "lhs_right_size"]
  if "lhs_axis_boundary" in attributes:
    boundary = attributes["lhs_axis_boundary"]
    is_left = attributes.get("lhs_transposed", 0)
    summed = lhs.dimensions[:boundary] if is_left else lhs.dimensions[boundary:]
    return math.prod(summed)
  return attributes.get("K")


def _convolution(
  lhs: hlo.Shape, kernel: hlo.Shape, instruction: hlo.Instruction
) -> MatrixProduct:
  """A convolution as the matrix product of its implicit-GEMM form."""
  output = result = hlo.first_array(instruction.shape)
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
    arithmetic=arithmetic_of(
      hlo.element_type(lhs), instruction.precision_config
    ),
  )


ATTENTION_TARGETS = ("__cudnn$fmha", "te_fused_attn", "cudnn_fmha")

_CAUSAL, _BOTTOM_RIGHT = (2, 3, 4, 5), (4, 5)
# Transformer Engine's attributes about scores; other versions may lack some.
_OF_SCORES = frozenset(
  ("mask_type", "input_batch", "attn_heads", "q_max_seqlen", "kv_max_seqlen")
)


def _num_scores(
  num: int,
  length: int,
  keys: int,
  *,
  is_causal: bool,
  is_bottom_right: bool = False,
  window: int = 0,
) -> int:
  """The number of unmasked scores in `num` matrices of queries by keys.

  A causal mask shows query i the keys up to i; aligned at the bottom right, it
  shows the last query the last key. `window` is the most keys that a query
  sees, 0 for all.
  """
  window = window or keys
  if not is_causal:
    return num * length * keys
  if is_bottom_right and keys > length:
    return num * min(length * keys - length * length // 2, length * window)
  most = min(length, keys, window)
  return num * most * (2 * length - most) // 2


def is_backward_attention(call: hlo.Instruction) -> bool:
  """Whether a call is the gradient of fused attention."""
  return "ackward" in call.custom_call_target


def attention_flops(
  module: hlo.Module, call: hlo.Instruction, query: hlo.Shape, key: hlo.Shape
) -> int:
  """Floating-point operations of fused attention, without masked scores.

  The forward pass has two products, the backward pass five (Dao 2022,
  FlashAttention, sec. 3.1). `query` and `key` are the call's first operands,
  with the head size last. 0 if neither attributes nor shapes are enough.
  """
  fmha = module.backend_config(call).get("cudnn_fmha_backend_config", {})
  attributes = library_calls.attributes(module, call)
  shape = fmha.get("intermediate_tensor_shape", {}).get("dimensions", ())
  if len(shape) == 4:
    batch, heads, length, keys = map(int, shape)
    scores = _num_scores(
      batch * heads,
      length,
      keys,
      is_causal="CAUSAL" in fmha.get("mask_type", ""),
      window=int(fmha.get("sliding_window_length", 0)),
    )
  elif attributes.keys() >= _OF_SCORES:
    mask = attributes["mask_type"]
    scores = _num_scores(
      attributes["input_batch"] * attributes["attn_heads"],
      attributes["q_max_seqlen"],
      attributes["kv_max_seqlen"],
      is_causal=mask in _CAUSAL,
      is_bottom_right=mask in _BOTTOM_RIGHT,
      window=attributes.get("window_size_left", -1) + 1,
    )
  elif len(query.dimensions) == 4 and len(key.dimensions) >= 4:
    # [batch, length, heads, size]; causal if queries and keys are equally long.
    batch, length, heads, _ = query.dimensions
    keys = key.dimensions[1]
    is_causal = length == keys
    if "mask_type" in fmha:
      is_causal = "CAUSAL" in fmha["mask_type"]
    scores = _num_scores(batch * heads, length, keys, is_causal=is_causal)
  else:
    return 0
  products = 5 if is_backward_attention(call) else 2
  return products * 2 * scores * query.dimensions[-1]
