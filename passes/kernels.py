# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""One `Kernel` record for each launch on the compute stream.

After optimization nearly every instruction that does work is one kernel: a
fusion, a library call, a copy. This pass says which instructions launch one,
what kind it is, how many floating-point operations it does and how many bytes
it moves. It says nothing about time; that is the cost model's business.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import math
from typing import Any

from lagom_xla.passes import collectives
from lagom_xla.passes import hlo

# Run by the host or the control flow, or accounted for elsewhere.
_NO_KERNEL = collectives.NOPS | frozenset(
  [
    "async-done",
    "async-update",
    "call",
    "conditional",
    "copy-done",
    "infeed",
    "outfeed",
    "while",
  ]
)

_GEMM_TARGETS = ("__cublas$", "__triton_gemm", "__cutlass")
_ATTENTION_TARGETS = ("__cudnn$fmha", "te_fused_attn", "cudnn_fmha")
_CONVOLUTION_TARGETS = ("__cudnn$conv",)
# Instructions that may hold matrix products, in themselves or inside.
_MULTIPLYING = frozenset(
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
_SLICES = frozenset(["dynamic-slice", "slice", "gather"])
_REDUCTIONS = frozenset(["reduce", "reduce-window", "select-and-scatter"])
# In a fusion these only say where a value is or what it is called.
_NO_ARITHMETIC = frozenset(
  [
    "bitcast",
    "broadcast",
    "constant",
    "copy",
    "fusion",
    "get-tuple-element",
    "parameter",
    "reshape",
    "transpose",
    "tuple",
    *_SLICES,
    *_MULTIPLYING,
  ]
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Kernel:
  """One kernel of a module.

  Attributes:
    name: name of the instruction that launches it.
    category: "gemm", "attention", "convolution", "fusion", "copy" or "other".
    computation: name of the computation that it stands in.
    instruction_id: id of the instruction.
    executions: times it runs per step.
    flops: floating-point operations of its matrix products and convolutions,
      per execution.
    num_bytes: bytes that it reads and writes, per execution.
    num_element_operations: scalar operations outside those products, such as
      an addition or a conversion of one element, per execution.
    pattern: how it goes through memory: "elementwise" (in the order in which
      it lies), "row-reduction" (along the innermost dimension),
      "column-reduction" (across it), or "transpose" (another dimension
      becomes innermost); the costliest of what it holds.
    is_backward: whether it is the gradient of a fused attention.
    element_type: HLO element type of the first matrix operand, or of the
      result.
    result_elements: elements of the largest array that it writes; of one that
      it updates in place, only the update.
    matrix_shape: (batch, m, n, k) of its largest matrix product, or None.
    backend_config: what XLA decided for it, as JSON.
  """

  name: str
  category: str
  computation: str
  instruction_id: int
  executions: int
  flops: int
  num_bytes: int
  num_element_operations: int = 0
  pattern: str = "elementwise"
  is_backward: bool = False
  element_type: str
  result_elements: int
  matrix_shape: tuple[int, int, int, int] | None
  backend_config: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _MatrixProduct:
  batch: int
  m: int
  n: int
  k: int
  element_type: str

  @property
  def flops(self) -> int:
    return 2 * self.batch * self.m * self.n * self.k


def launches_kernel(module: hlo.Module, instruction: hlo.Instruction) -> bool:
  """Whether an instruction launches a kernel on the compute stream."""
  if instruction.opcode in _NO_KERNEL or collectives.kind_of(instruction):
    return False
  if instruction.opcode.endswith("-done"):
    return False
  return not collectives.payloads(module, instruction)


def of_instruction(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
) -> Kernel:
  """The kernel that an instruction launches."""
  config = module.backend_config(instruction)
  products = _matrix_products(module, computation, instruction)
  largest = max(products, key=lambda p: p.flops, default=None)
  flops = sum(p.flops for p in products)
  category = _category(instruction, config, bool(products))
  written = _written(module, computation, instruction)
  fused = _fused(module, instruction)
  wanted = _wanted_elements(fused) if fused else {}
  if category == "attention":
    flops = _attention_flops(computation, instruction)
  operands = computation.operands(instruction)
  typed = operands[0].shape if category == "attention" else instruction.shape
  return Kernel(
    name=instruction.name,
    category=category,
    computation=computation.name,
    instruction_id=instruction.id,
    executions=module.executions.get(computation.id, 0),
    flops=flops,
    num_bytes=(
      sum(map(hlo.shape_bytes, written))
      + (
        _read_bytes(fused, wanted)
        if fused
        else _unfused_read_bytes(computation, instruction, written)
      )
    ),
    num_element_operations=_element_operations(
      fused or computation, instruction, wanted
    ),
    pattern=(
      "elementwise"  # Tiles of a product are turned in shared memory.
      if products
      else _pattern(fused or computation, instruction, fused is not None)
    ),
    is_backward=_is_backward(instruction),
    element_type=largest.element_type if largest else _array_type(typed),
    result_elements=max(map(_num_elements, written), default=0),
    matrix_shape=(
      (largest.batch, largest.m, largest.n, largest.k) if largest else None
    ),
    backend_config=config,
  )


def _category(
  instruction: hlo.Instruction, config: Mapping[str, Any], has_dot: bool
) -> str:
  target = instruction.custom_call_target
  fusion_kind = config.get("fusion_backend_config", {}).get("kind", "")
  if target.startswith(_ATTENTION_TARGETS):
    return "attention"
  if target.startswith(_CONVOLUTION_TARGETS):
    return "convolution"
  if instruction.opcode == "convolution":
    return "convolution"
  if has_dot or (target or fusion_kind).startswith(_GEMM_TARGETS):
    return "gemm"
  if instruction.opcode in ("copy", "copy-start"):
    return "copy"
  if instruction.opcode in ("fusion", "async-start"):
    return "fusion"
  return "other"


def _matrix_products(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
) -> list[_MatrixProduct]:
  """The matrix products that one kernel computes."""
  match instruction.opcode:
    case "dot" | "scaled-dot":
      numbers = instruction.dot_dimension_numbers
      return [
        _product(
          *(o.shape for o in computation.operands(instruction)[:2]),
          lhs_contracting=list(numbers.lhs_contracting_dimensions),
          lhs_batch=list(numbers.lhs_batch_dimensions),
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
        if not callee.opcodes.isdisjoint(_MULTIPLYING)
        for inner in callee.instructions
        for product in _matrix_products(module, callee, inner)
      ]
  return []


def _library_product(
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  config: Mapping[str, Any],
) -> list[_MatrixProduct]:
  """The product of a cuBLAS or cuDNN call."""
  if instruction.custom_call_target.startswith(_CONVOLUTION_TARGETS):
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
    )
  ]


def _product(
  lhs: hlo.Shape,
  rhs: hlo.Shape,
  *,
  lhs_contracting: list[int],
  lhs_batch: list[int],
) -> _MatrixProduct:
  k = math.prod(lhs.dimensions[d] for d in lhs_contracting)
  batch = math.prod(lhs.dimensions[d] for d in lhs_batch)
  shared = max(k * batch, 1)
  return _MatrixProduct(
    batch=batch,
    m=math.prod(lhs.dimensions) // shared,
    n=math.prod(rhs.dimensions) // shared,
    k=k,
    element_type=hlo.element_type(lhs),
  )


def _grouped_product(
  computation: hlo.Computation, instruction: hlo.Instruction
) -> _MatrixProduct:
  """[m, k] by [groups, k, n], where each row meets one group."""
  lhs, rhs = (o.shape for o in computation.operands(instruction)[:2])
  return _MatrixProduct(
    batch=1,
    m=math.prod(lhs.dimensions[:-1]),
    n=rhs.dimensions[-1],
    k=lhs.dimensions[-1],
    element_type=hlo.element_type(lhs),
  )


def _convolution(
  computation: hlo.Computation, instruction: hlo.Instruction
) -> _MatrixProduct:
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
  return _MatrixProduct(
    batch=1,
    m=math.prod(output.dimensions) // max(features, 1),
    n=features,
    k=math.prod(kernel.dimensions) // max(features, 1),
    element_type=hlo.element_type(lhs),
  )


def _attention_flops(
  computation: hlo.Computation, instruction: hlo.Instruction
) -> int:
  """Operations of a fused attention call, from its query and key shapes.

  Forward is two products, backward five (Dao 2022, FlashAttention, sec. 3.1).
  Half of them fall to a causal mask; whether there is one is in attributes
  that differ by library, so a mask is assumed where query and key lengths are
  equal.
  """
  query, key = (o.shape for o in computation.operands(instruction)[:2])
  if len(query.dimensions) != 4 or len(key.dimensions) < 4:
    return 0
  batch, length, heads, size = query.dimensions
  key_length = key.dimensions[1]
  products = 5 if _is_backward(instruction) else 2
  causal = 2 if key_length == length else 1
  scores = batch * heads * length * key_length
  return products * 2 * scores * size // causal


def _unfused_read_bytes(
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  written: list[hlo.Shape],
) -> int:
  """Bytes that an instruction by itself reads; of a slice, only the slice."""
  if instruction.opcode in (*_SLICES, "dynamic-update-slice"):
    return sum(map(hlo.shape_bytes, written))
  operands = computation.operands(instruction)
  return sum(hlo.shape_bytes(o.shape) for o in operands)


def _fused(
  module: hlo.Module, instruction: hlo.Instruction
) -> hlo.Computation | None:
  """The computation that a fusion runs, async or not."""
  if instruction.opcode not in ("fusion", "async-start"):
    return None
  called = module.computations[instruction.called_computation_ids[0]]
  if instruction.opcode == "async-start":
    return _fused(module, called.root) or called
  return called


def _wanted_elements(fused: hlo.Computation) -> dict[int, int]:
  """Elements of each value in a fusion that its results depend on, by id.

  A fusion computes only those: what is sliced later is never computed whole,
  and what is updated in place is neither read nor written outside the update.
  """
  wanted = dict.fromkeys(fused.by_id, 0)
  wanted[fused.root.id] = _num_elements(fused.root.shape)
  for user in _users_first(fused):
    for index, operand in enumerate(fused.operands(user)):
      whole = _num_elements(operand.shape)
      passed = _passed_on(user, index, whole, wanted[user.id])
      wanted[operand.id] = min(wanted[operand.id] + passed, whole)
  return wanted


def _passed_on(
  user: hlo.Instruction, index: int, whole: int, wanted: int
) -> int:
  """Elements of an operand that so many elements of its user depend on."""
  opcode = user.opcode
  if opcode in _SLICES and index == 0:
    return wanted
  if opcode == "dynamic-update-slice" and index == 0:
    return 0
  if opcode in _REDUCTIONS:
    return math.ceil(wanted * whole / max(_num_elements(user.shape), 1))
  if opcode in _MULTIPLYING or opcode in ("tuple", "dynamic-update-slice"):
    return whole
  return min(wanted, whole)


def _users_first(fused: hlo.Computation) -> list[hlo.Instruction]:
  """The root and what it depends on, each value after all of its users."""
  order: list[hlo.Instruction] = []
  seen = set()
  pending = [(fused.root, False)]
  while pending:
    instruction, visited = pending.pop()
    if visited:
      order.append(instruction)
    elif instruction.id not in seen:
      seen.add(instruction.id)
      pending.append((instruction, True))
      pending += [(o, False) for o in fused.operands(instruction)]
  return order[::-1]


def _read_bytes(fused: hlo.Computation, wanted: Mapping[int, int]) -> int:
  return sum(
    math.ceil(
      hlo.shape_bytes(i.shape) * wanted[i.id] / max(_num_elements(i.shape), 1)
    )
    for i in fused.instructions
    if i.opcode == "parameter"
  )


def _element_operations(
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  wanted: Mapping[int, int],
) -> int:
  """Operations on single elements, one for each element that is computed.

  A reduction does one for each element that it takes in.
  """

  def operations(i: hlo.Instruction, count: int) -> int:
    if i.opcode in _NO_ARITHMETIC:
      return 0
    if i.opcode in _REDUCTIONS:
      taken = computation.by_id[i.operand_ids[0]]
      return wanted.get(taken.id, _num_elements(taken.shape))
    return count

  if wanted:
    return sum(operations(i, wanted[i.id]) for i in computation.instructions)
  return operations(instruction, _num_elements(instruction.shape))


def _is_backward(instruction: hlo.Instruction) -> bool:
  return "ackward" in instruction.custom_call_target


def _pattern(
  computation: hlo.Computation, instruction: hlo.Instruction, is_fusion: bool
) -> str:
  parts = computation.instructions if is_fusion else (instruction,)
  if any(_moves_innermost(computation, i) for i in parts):
    return "transpose"
  reductions = [i for i in parts if i.opcode == "reduce"]
  if any(not _reduces_innermost(computation, i) for i in reductions):
    return "column-reduction"
  return "row-reduction" if reductions else "elementwise"


def _reduces_innermost(
  computation: hlo.Computation, reduction: hlo.Instruction
) -> bool:
  taken = _innermost(computation.by_id[reduction.operand_ids[0]].shape)
  return taken is None or taken in reduction.dimensions


def _moves_innermost(
  computation: hlo.Computation, instruction: hlo.Instruction
) -> bool:
  """Whether neighbours in memory are no longer neighbours afterwards."""
  if instruction.opcode not in ("copy", "copy-start", "transpose"):
    return False
  (operand,) = computation.operands(instruction)
  result = instruction.shape
  while result.tuple_shapes:
    result = result.tuple_shapes[0]
  before, after = _innermost(operand.shape), _innermost(result)
  if instruction.opcode == "transpose" and after is not None:
    after = instruction.dimensions[after]
  return before is not None and before != after


def _innermost(shape: hlo.Shape) -> int | None:
  """The innermost dimension of more than one element, if there is one."""
  order = shape.layout.minor_to_major or range(len(shape.dimensions))[::-1]
  return next((d for d in order if shape.dimensions[d] > 1), None)


def _written(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
) -> list[hlo.Shape]:
  """The arrays, or updates of arrays, that an instruction writes."""
  fused = _fused(module, instruction)
  if fused:
    return _written(module, fused, fused.root)
  match instruction.opcode:
    case "tuple":
      return [
        shape
        for operand in computation.operands(instruction)
        for shape in _written(module, computation, operand)
      ]
    case "bitcast":
      (operand,) = computation.operands(instruction)
      return _written(module, computation, operand)
    case "dynamic-update-slice":
      return [computation.operands(instruction)[1].shape]
    case "copy-start":  # (destination, source, context)
      return [instruction.shape.tuple_shapes[0]]
    case "custom-call":
      return _without_workspace(instruction.shape)
  return [instruction.shape]


def _without_workspace(shape: hlo.Shape) -> list[hlo.Shape]:
  """The results of a library call; the last may be its scratch memory."""
  results = list(shape.tuple_shapes) or [shape]
  last = results[-1]
  is_raw = hlo.element_type(last) in ("s8", "u8") and len(last.dimensions) == 1
  return results[:-1] if len(results) > 1 and is_raw else results


def _num_elements(shape: hlo.Shape) -> int:
  if shape.tuple_shapes:
    return max(map(_num_elements, shape.tuple_shapes))
  return math.prod(shape.dimensions)


def _array_type(shape: hlo.Shape) -> str:
  while shape.tuple_shapes:
    shape = shape.tuple_shapes[0]
  return hlo.element_type(shape)
