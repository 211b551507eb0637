# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Work of the instructions of a module on XLA:CPU, and what it costs."""

from __future__ import annotations

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


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Work:
  """What an instruction does, and how long that takes alone."""

  kind: Kind
  seconds: float


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

  def work(
    self,
    module: hlo.Module,
    computation: hlo.Computation,
    instruction: hlo.Instruction,
  ) -> Work | None:
    """What an instruction takes; None for those that take no time."""
    found = amount(module, computation, instruction)
    if found is None:
      return None
    if found.kind == "collective":
      seconds = (
        found.num_arrays * self.array_s + found.num_bytes * self.network_byte_s
      )
    else:
      seconds = (
        self.launch_s
        + found.num_multiplications * self.multiplication_s
        + found.num_bytes * self.byte_s
      )
    return Work(kind=found.kind, seconds=seconds)


def amount(
  module: hlo.Module, computation: hlo.Computation, instruction: hlo.Instruction
) -> Amount | None:
  """How much an instruction does; None for those that take no time."""
  if instruction.opcode in collectives.KINDS:
    moved = _moved(module).get(instruction.id)
    return None if moved is None else moved
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


@functools.lru_cache(maxsize=1)  # One module is looked at again and again.
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
