# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Kernels as one record for each launch on the compute stream.

After optimization nearly every instruction that does work is one kernel: a
fusion, a library call, a copy. This pass says which instructions launch one,
what kind it is, how many floating-point operations it does and how many bytes
it moves. It says nothing about time; that is for the cost model.

Asked to (xla_gpu_collect_cost_model_stats), XLA's cost models write what they
believe into the backend_config of kernels and collectives, as a list of entries
called `reification_cost`. The entry "sol" is of the speed-of-light model, by
which its scheduler decides.
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
  """XLA's speed-of-light estimate of an instruction, by its config as JSON.

  In microseconds; None where XLA wrote none.
  """
  for entry in backend_config.get("reification_cost", ()):
    if entry.get("name") == "sol":
      return float(entry.get("exec_time_us", 0.0))  # 0 is left out.
  return None


# Run by the host or the control flow, or accounted for elsewhere.
_NO_KERNEL = collectives.NOPS | frozenset(
  ["async-update", "call", "conditional", "infeed", "outfeed", "while"]
)

# What a loop's stack starts as, on the host or unfilled; no bytes move.
ALLOCATION = "AllocateBuffer"

# Not __cublas$triangularSolve, whose operations nothing here counts.
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
    computation: name of the computation that it stands in.
    instruction_id: id of the instruction.
    executions: times it runs per step.
    flops: floating-point operations of its matrix products and convolutions,
      per execution.
    is_backward: whether it is the gradient of a fused attention.
    element_type: HLO element type of the first matrix operand, or of the
      result.
    matrix_shape: (batch, m, n, k) of its largest matrix product, or None.
    arithmetic: what that product multiplies; None without one.
    backend_config: what XLA decided for it, as JSON.
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
    return False  # On a stream that the program names.
  # One that multiplies, too, is both.
  return not collectives.payloads(module, instruction) or any(
    _multiplies(module, module.computations[i]) for i in called_ids
  )


def _multiplies(module: hlo.Module, computation: hlo.Computation) -> bool:
  """Whether products stand in a computation or in what it holds."""
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


# How JAX ends the op name of what a program concatenates.
_WRITTEN = "/concatenate"
# What stands between an operand of a fusion and what it concatenates.
_PASSING = ("bitcast", "convert", "copy", "reshape", "transpose")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MergedProduct:
  """A product that XLA made of several that share an operand.

  Attributes:
    kernel: the one that it is now.
    elements: of each array that XLA concatenates for it, how many; by the id of
      the instruction that makes it.
  """

  kernel: Kernel
  elements: Mapping[int, int]

  @property
  def least_bytes(self) -> tuple[int, int]:
    """What the smallest of the products moves, without and with what is shared.

    Its own operand and its result, and then the shared operand, too.
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
  """The products that XLA made of several that share an operand.

  XLA concatenates the operands that they do not share (DotMerger, in xla/hlo/
  transforms/simplifiers). The one product waits for all of these; two strands
  that share a weight are coupled by it. Where a module has no op names, what
  the program concatenated counts, too.

  Args:
    module: as scheduled.
    kernels: of it, by the id of their instruction.
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
  """What XLA concatenates in a kernel: ids of operands, and elements of each.

  `operands` are those of the outermost fusion.
  """
  if instruction.opcode == "concatenate":
    # XLA names what it adds after what it is made of.
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
