# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reorders a module for XLA:CPU, with collectives behind products.

XLA:CPU starts ready instructions in the order of the schedule, on its threads,
and a collective blocks its thread until it is done. By default collectives come
first, and everything waits. If an independent product comes right before a
collective, the two run at the same time.

XLA assigns buffers after this pass, by the new order. The result of a
collective could get memory that the product beside it still reads, and would
wait for the product. Later instructions could get memory that a collective
still sends, and would wait for the collective. So unused tuples keep the
product's operands alive past the collective, and the collective's operands
alive up to the first user of its result.

    with in_compile.rewritten(
      name, behind_products.rewrite, registry.Stage.POST_SCHEDULER, "cpu"
    ):
      lowered.compile()
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
import itertools

from lagom_xla.passes import collectives
from lagom_xla.passes import edit
from lagom_xla.passes import hlo
from lagom_xla.passes import matrix_products
from lagom_xla.passes.schedule import aliasing
from lagom_xla.passes.schedule import orders

# Smaller products end before another thread wakes up: 256 x 256 x 512
# multiplications do, 512 x 512 x 512 do not (measured on two cores with jaxlib
# 0.10.2).
_LEAST_MULTIPLICATIONS = 64 << 20


class _Buffers(aliasing.Buffers):
  """Buffers of XLA:CPU, which assigns them after its passes, by their order."""

  def may_write_operands(self, instruction: hlo.Instruction) -> bool:
    is_collective = collectives.kind_of(instruction) is not None
    return not is_collective and super().may_write_operands(instruction)


def rewrite(module: hlo.Module) -> bytes | None:
  """The scheduled module with collectives behind products, serialized.

  None if there is no product for any collective.
  """
  ids = [
    id_
    for id_, computation in module.computations.items()
    if any(map(_is_collective, computation.instructions))
    and _large_products(module, computation)
  ]
  if not ids:
    return None
  copy = module.copy()
  buffers = _Buffers(copy)
  editor = edit.Editor(copy)
  is_changed = False
  for computation in map(copy.computations.__getitem__, ids):
    ordered, behind = _order_of(copy, computation, buffers)
    if behind:
      is_changed = True
      _write(copy, computation, ordered, behind, editor)
  return copy.proto.SerializeToString() if is_changed else None


def _order_of(
  module: hlo.Module, computation: hlo.Computation, buffers: aliasing.Buffers
) -> tuple[list[hlo.Instruction], dict[int, int]]:
  """A computation in its new order, and collectives -> products before them.

  A product waits until a collective is ready, and a collective until a product
  is, as long as anything else can run. Instructions that need a collective, but
  lead to no other one, come last. Otherwise later instructions could get memory
  that they free, and would wait for them and the collective.
  """
  sizes = _large_products(module, computation)
  waits_for = _needs(computation, buffers)
  last = _needed_last(computation, waits_for)
  num_left = {id_: len(before) for id_, before in waits_for.items()}
  after: dict[int, list[int]] = {id_: [] for id_ in num_left}
  # Positions of ready instructions, in order; the second list comes last.
  ready: tuple[list[int], list[int]] = [], []
  for position, instruction in enumerate(computation.instructions):
    for id_ in waits_for[instruction.id]:
      after[id_].append(instruction.id)
    if not waits_for[instruction.id]:
      ready[instruction.id in last].append(position)
  ordered: list[hlo.Instruction] = []
  behind: dict[int, int] = {}
  while positions := ready[0] or ready[1]:
    taken = _next([computation.instructions[it] for it in positions], sizes)
    if len(taken) > 1:
      product, collective = taken
      behind[collective.id] = product.id
    for instruction in taken:
      positions.remove(computation.position[instruction.id])
      ordered.append(instruction)
      for later in after[instruction.id]:
        num_left[later] -= 1
        if not num_left[later]:
          bisect.insort(ready[later in last], computation.position[later])
  return ordered, behind


def _needed_last(
  computation: hlo.Computation, waits_for: Mapping[int, set[int]]
) -> set[int]:
  """Instructions that depend on a collective, and on which none depends."""
  collective_ids = {i.id for i in computation.instructions if _is_collective(i)}
  # The collectives with all that depend on them, and with all that they need.
  behind, ahead = set(collective_ids), set(collective_ids)
  for instruction in computation.instructions:
    if not behind.isdisjoint(waits_for[instruction.id]):
      behind.add(instruction.id)
  for instruction in reversed(computation.instructions):
    if instruction.id in ahead:
      ahead |= waits_for[instruction.id]
  return behind - ahead


def _next(
  ready: Sequence[hlo.Instruction], sizes: Mapping[int, int]
) -> list[hlo.Instruction]:
  """The next of the ready instructions: one, or a product and a collective."""
  collective = None
  products = []
  for instruction in ready:
    if instruction.id in sizes:
      products.append(instruction)
    elif not _is_collective(instruction):
      return [instruction]
    else:
      collective = collective or instruction
  if collective is None:
    return products[:1]
  if not products:
    return [collective]
  return [max(products, key=lambda product: sizes[product.id]), collective]


def is_large(multiplications: int) -> bool:
  """Whether a product is parallel, so that a collective can run beside it."""
  return multiplications >= _LEAST_MULTIPLICATIONS


def _large_products(
  module: hlo.Module, computation: hlo.Computation
) -> dict[int, int]:
  """The multiplications of each large product, by its id."""
  return {
    i.id: size
    for i in computation.instructions
    if is_large(size := num_multiplications(module, computation, i))
  }


def num_multiplications(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
) -> int:
  """Multiplications of a product, or of a fusion's products; 0 for others."""
  products = matrix_products.of_instruction(module, computation, instruction)
  return sum(product.flops // 2 for product in products)


def _is_collective(instruction: hlo.Instruction) -> bool:
  return instruction.opcode in collectives.KINDS


def _needs(
  computation: hlo.Computation, buffers: aliasing.Buffers
) -> dict[int, set[int]]:
  """The instructions that must run before each instruction.

  These are its operands; those that, in the old order, touched memory that it
  writes, or wrote memory that it touches; and for a collective the one before
  it, because all hosts must agree on the order.
  """
  before = orders.predecessors(computation, buffers)
  needs = {id_: set(earlier) for id_, earlier in before.items()}
  ids = [i.id for i in computation.instructions if _is_collective(i)]
  for earlier, later in itertools.pairwise(ids):
    needs[later].add(earlier)
  return needs


def _write(
  module: hlo.Module,
  computation: hlo.Computation,
  ordered: Sequence[hlo.Instruction],
  behind: Mapping[int, int],
  editor: edit.Editor,
) -> None:
  """Writes an order into the module's proto, with tuples that keep operands."""
  ids: list[int] = []
  in_flight: dict[int, hlo.Instruction] = {}

  def keep_operands_of(instruction: hlo.Instruction) -> None:
    """Adds a tuple of the operands, which takes no time."""
    operands = computation.operands(instruction)
    kept = hlo.Instruction(
      name=editor.new_name("kept_alive"),
      opcode="tuple",
      shape=hlo.Shape(
        element_type=hlo.TUPLE, tuple_shapes=[it.shape for it in operands]
      ),
      id=editor.new_id(computation),
      operand_ids=[it.id for it in operands],
    )
    computation.proto.instructions.append(kept)
    ids.append(kept.id)

  for instruction in ordered:
    for needed in instruction.operand_ids:
      if needed in in_flight and ids[-1] != needed:
        keep_operands_of(in_flight.pop(needed))
    ids.append(instruction.id)
    if instruction.id in behind:
      keep_operands_of(computation.by_id[behind[instruction.id]])
    if _is_collective(instruction):
      in_flight[instruction.id] = instruction
  sequence = module.proto.schedule.sequences[computation.id]
  sequence.instruction_ids[:] = ids
