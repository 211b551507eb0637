# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Kernels: one record for each launch on the compute stream.

After optimization, nearly every instruction that does work is one kernel: a
fusion, a library call, or a copy. This module finds these instructions, and for
each its kind, floating-point operations, and bytes. The cost model computes the
times.

With xla_gpu_collect_cost_model_stats, XLA writes the estimates of its cost
models into the backend_config of kernels and collectives, as a list of entries
named `reification_cost`. The entry "sol" comes from the speed-of-light model,
which XLA's scheduler uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import math
from typing import Any

from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes import matrix_products
from lagom_xla.passes import memory_access


def sol_time_us(backend_config: Mapping[str, Any]) -> float | None:
  """XLA's speed-of-light estimate of an instruction, in microseconds.

  `backend_config` is the instruction's config as JSON. None if XLA wrote no
  estimate.
  """
  for entry in backend_config.get("reification_cost", ()):
    if entry.get("name") == "sol":
      return float(entry.get("exec_time_us", 0.0))  # JSON omits 0.
  return None


# These run on the host or are control flow, or are counted elsewhere.
_NO_KERNEL = collectives.NOPS | frozenset(
  ["async-update", "call", "conditional", "infeed", "outfeed", "while"]
)

# The initial value of a loop's stack, on the host or uninitialized; no bytes.
ALLOCATION = "AllocateBuffer"

# Excludes __cublas$triangularSolve, whose operations are not counted.
_GEMM_TARGETS = (
  "__cublas$gemm",
  "__cublas$lt$",
  "__triton_gemm",
  "__cutlass",
)


_PRODUCTS = frozenset(["convolution", "custom-call", "dot", "scaled-dot"])


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Kernel(memory_access.Access):
  """One kernel of a module.

  Attributes:
    name: name of the instruction that launches it.
    category: "gemm", "attention", "convolution", "fusion", "copy" or "other".
    computation: name of the computation that holds it.
    instruction_id: id of the instruction.
    executions: times it runs per step.
    flops: floating-point operations of its matrix products and convolutions,
      per execution.
    is_backward: whether it is the gradient of a fused attention.
    element_type: HLO element type of the first matrix operand, or else of the
      result.
    matrix_shape: (batch, m, n, k) of its largest matrix product, or None.
    arithmetic: the arithmetic of that product; None without one.
    backend_config: its backend_config, as JSON.
  """

  name: str
  category: str
  computation: str
  instruction_id: int
  executions: int
  flops: int
  is_backward: bool = False
  arithmetic: matrix_products.Arithmetic | None = None
  element_type: str
  matrix_shape: tuple[int, int, int, int] | None
  backend_config: Mapping[str, Any]


def launches_kernel(module: hlo.Module, instruction: hlo.Instruction) -> bool:
  """Whether an instruction launches a kernel on the compute stream."""
  if (
    instruction.opcode in _NO_KERNEL
    or instruction.opcode.endswith("-done")
    or instruction.custom_call_target == ALLOCATION
    or collectives.kind_of(instruction)
  ):
    return False
  called_ids = instruction.called_computation_ids
  if (
    instruction.opcode == "async-start" and called_ids[0] not in module.wrapped
  ):
    return False  # It runs on a stream that the program names.
  # A collective with a matrix product is a kernel, too.
  return not collectives.payloads(module, instruction) or any(
    _multiplies(module, module.computations[i]) for i in called_ids
  )


def _multiplies(module: hlo.Module, computation: hlo.Computation) -> bool:
  """Whether a computation or one of its callees has matrix products."""
  return any(
    any(
      _multiplies(module, module.computations[i])
      for i in instruction.called_computation_ids
    )
    if instruction.called_computation_ids
    else instruction.opcode in _PRODUCTS
    for instruction in computation.instructions
  )


def of_instruction(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
) -> Kernel:
  """The kernel that an instruction launches."""
  config = module.backend_config(instruction)
  products = matrix_products.of_instruction(module, computation, instruction)
  largest = max(products, key=lambda p: p.flops, default=None)
  flops = sum(p.flops for p in products)
  category = _category(instruction, config, bool(products))
  typed = hlo.first_array(instruction.shape)
  if category == "attention":
    query, key = (o.shape for o in computation.operands(instruction)[:2])
    flops = matrix_products.attention_flops(module, instruction, query, key)
    typed = hlo.first_array(query)
  access = memory_access.of_instruction(
    module, computation, instruction, has_product=bool(products)
  )
  return Kernel(
    name=instruction.name,
    category="copy" if access.pattern == "memcpy" else category,
    computation=computation.name,
    instruction_id=instruction.id,
    executions=module.executions.get(computation.id, 0),
    flops=flops,
    num_bytes=access.num_bytes,
    num_element_operations=access.num_element_operations,
    pattern=access.pattern,
    num_threads=access.num_threads,
    num_columns=access.num_columns,
    scatter=access.scatter,
    scattered=access.scattered,
    is_backward=matrix_products.is_backward_attention(instruction),
    element_type=largest.element_type if largest else hlo.element_type(typed),
    arithmetic=largest.arithmetic if largest else None,
    result_elements=access.result_elements,
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
  if target.startswith(matrix_products.ATTENTION_TARGETS):
    return "attention"
  if instruction.opcode == "convolution" or target.startswith(
    matrix_products.CONVOLUTION_TARGETS
  ):
    return "convolution"
  if has_dot or (target or fusion_kind).startswith(_GEMM_TARGETS):
    return "gemm"
  if instruction.opcode in ("copy", "copy-start"):
    return "copy"
  if instruction.opcode in ("fusion", "async-start"):
    return "fusion"
  return "other"


# The end of the op name of a concatenation in the program.
_WRITTEN = "/concatenate"
# Opcodes between a fusion's operand and what the fusion concatenates.
_PASSING = ("bitcast", "convert", "copy", "reshape", "transpose")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MergedProduct:
  """A product that XLA merged from several with a shared operand.

  Attributes:
    kernel: the kernel that runs it.
    elements: elements of each array that XLA concatenates for it, by the id of
      the array's instruction.
  """

  kernel: Kernel
  elements: Mapping[int, int]

  @property
  def least_bytes(self) -> tuple[int, int]:
    """Bytes of the smallest product, without and with the shared operand.

    Both include its own operand and result.
    """
    assert self.kernel.matrix_shape
    batch, m, n, k = self.kernel.matrix_shape
    all_elements = sum(self.elements.values())
    if all_elements != batch * m * k:
      m, n = n, m
    bits = hlo.element_bits(self.kernel.element_type)
    share = min(self.elements.values()) / all_elements
    own_bits = share * batch * m * (k + n) * bits
    shared_bits = batch * n * k * bits
    return math.ceil(own_bits / 8), math.ceil((own_bits + shared_bits) / 8)


def merged_products(
  module: hlo.Module, kernels: Mapping[int, Kernel]
) -> Iterator[MergedProduct]:
  """The products that XLA merged from several with a shared operand.

  XLA concatenates the other operands (DotMerger, in
  xla/hlo/transforms/simplifiers). The merged product waits for all of these, so
  it couples two strands that share a weight. In a module without op names,
  concatenations in the program count, too.

  Args:
    module: a scheduled module.
    kernels: its kernels, by the id of their instruction.
  """
  for computation in module.computations.values():
    for instruction in computation.instructions:
      kernel = kernels.get(instruction.id)
      if kernel is None or kernel.matrix_shape is None:
        continue
      made_by = [
        computation.behind(operand, ("bitcast", "get-tuple-element"))
        for operand in computation.operands(instruction)
      ]
      for maker in (instruction, *made_by):
        operands = computation.operands(maker)
        if found := dict(_concatenated(module, maker, operands)):
          yield MergedProduct(kernel=kernel, elements=found)
          break


def _concatenated(
  module: hlo.Module,
  instruction: hlo.Instruction,
  operands: Sequence[hlo.Instruction],
) -> Iterator[tuple[int, int]]:
  """Operands that XLA concatenates in a kernel: ids and element counts.

  `operands` are the operands of the outermost fusion.
  """
  if instruction.opcode == "concatenate":
    # XLA names its own instructions after those they are made from.
    if not instruction.metadata.op_name.endswith(_WRITTEN):
      yield from ((o.id, hlo.num_elements(o.shape)) for o in operands)
    return
  if instruction.opcode != "fusion":
    return
  fused = module.computations[instruction.called_computation_ids[0]]
  for inner in fused.instructions:
    if inner.opcode in ("concatenate", "fusion"):
      sources = [fused.behind(o, _PASSING) for o in fused.operands(inner)]
      yield from _concatenated(
        module,
        inner,
        [
          operands[s.parameter_number] if s.opcode == "parameter" else s
          for s in sources
        ],
      )
