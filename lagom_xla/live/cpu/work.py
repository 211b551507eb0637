# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Work of the instructions of a module on XLA:CPU, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import functools
from typing import Literal

from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes.kernel_work import memory_access
from lagom_xla.passes.schedule import behind_products

# "product": large, on other threads; "kernel": all else that computes.
Kind = Literal["collective", "product", "kernel"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Amount:
  """How much of what an instruction does.

  Attributes:
    kind: who does it.
    num_multiplications: of its products.
    num_bytes: that a kernel reads and writes, or a collective moves.
    num_arrays: that a collective moves.
  """

  kind: Kind
  num_multiplications: int = 0
  num_bytes: int = 0
  num_arrays: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Costs:
  """What things cost on a host and its network, in seconds.

  Attributes:
    multiplication_s: one multiplication and addition of a product.
    byte_s: one byte that a kernel reads or writes.
    launch_s: starting a kernel.
    array_s: the latency of one array of a collective.
    network_byte_s: one byte of an array of a collective.
  """

  multiplication_s: float
  byte_s: float
  launch_s: float
  array_s: float
  network_byte_s: float

  def seconds(self, amount: Amount) -> float:
    """What so much takes alone."""
    if amount.kind == "collective":
      return (
        amount.num_arrays * self.array_s
        + amount.num_bytes * self.network_byte_s
      )
    return (
      self.launch_s
      + amount.num_multiplications * self.multiplication_s
      + amount.num_bytes * self.byte_s
    )


@functools.lru_cache(maxsize=1)  # One module is looked at again and again.
def amounts(module: hlo.Module) -> Mapping[int, Amount]:
  """How much each instruction of a module does that takes time, by id.

  Those that call computations are left out: what is inside takes the time.
  """
  moved = _moved(module)
  found: dict[int, Amount] = {}
  for computation_id in module.executions:
    computation = module.computations[computation_id]
    for instruction in computation.instructions:
      if instruction.opcode in collectives.KINDS:
        amount = moved.get(instruction.id)
      elif any(module.callees(instruction)):
        amount = None
      else:
        amount = _computed(module, computation, instruction)
      if amount is not None:
        found[instruction.id] = amount
  return found


def _computed(
  module: hlo.Module, computation: hlo.Computation, instruction: hlo.Instruction
) -> Amount | None:
  """How much a kernel does; None for what takes no time."""
  if instruction.opcode in collectives.NOPS:
    return None
  multiplications = behind_products.num_multiplications(
    module, computation, instruction
  )
  if multiplications:
    is_large = behind_products.is_large(multiplications)
    return Amount(
      kind="product" if is_large else "kernel",
      num_multiplications=multiplications,
    )
  access = memory_access.of_instruction(
    module, computation, instruction, has_product=False
  )
  return Amount(kind="kernel", num_bytes=access.num_bytes)


def _moved(module: hlo.Module) -> dict[int, Amount]:
  """The collectives of a module, by id.

  A ring passes an array of B bytes on in n - 1 steps of B / n, and an
  all-reduce does so twice.
  """
  moved = {}
  for one in collectives.find(module):
    num_ranks = max(one.group_size, 2)
    passes = 2 if one.kind == "all-reduce" else 1
    moved[one.start_id] = Amount(
      kind="collective",
      num_bytes=round(one.nccl_bytes * passes * (num_ranks - 1) / num_ranks),
      num_arrays=one.num_operands,
    )
  return moved
