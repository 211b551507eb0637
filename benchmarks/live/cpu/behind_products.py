# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The order in which XLA:CPU runs a module, with collectives behind products.

XLA:CPU starts what is ready in the order of the schedule, on the threads that
it has, and a collective holds its thread until it is done. By default
collectives come first and everything waits. Where a product that neither needs
a collective nor is needed by it stands right in front of it, the two run at the
same time.

Buffers are assigned after this pass, by the new order. The result of a
collective could get memory that the product beside it still reads, and would
wait for it; and what comes later could get the memory that a collective still
sends, and would wait for that. So the product's operands are kept alive past
the collective, and the collective's own up to the first who needs its result,
by tuples of them that nobody uses.

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

# Smaller products are over before another thread has woken up: 256 x 256 x 512
# multiplications are one of these, 512 x 512 x 512 are not (measured on two
# cores with jaxlib 0.10.2).
_LEAST_MULTIPLICATIONS = 64 << 20


class _Buffers(aliasing.Buffers):
  """Of XLA:CPU, which gives out buffers after its passes, by their order."""

  def may_write_operands(self, instruction: hlo.Instruction) -> bool:
    is_collective = collectives.kind_of(instruction) is not None
    return not is_collective and super().may_write_operands(instruction)


def rewrite(module: hlo.Module) -> bytes | None:
  """The scheduled module with collectives behind products, serialized.

  None where no collective found a product.
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
  """A computation in its new order; collectives, and products before them.

  Products wait until a collective is ready as well, and a collective until a
  product is, as long as there is anything else to run. What takes the result of
  a collective, and leads to no other one, comes last: whatever followed it here
  could get memory that it frees, and would wait for it and the collective.
  """
  sizes = _large_products(module, computation)
  waits_for = _needs(computation, buffers)
  last = _needed_last(computation, waits_for)
  num_left = {id_: len(before) for id_, before in waits_for.items()}
  after: dict[int, list[int]] = {id_: [] for id_ in num_left}
  # Positions of what is ready, in order: what is to come last is in the second.
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
  """What depends on a collective, and no collective depends on."""
  collective_ids = {i.id for i in computation.instructions if _is_collective(i)}
  # The collectives, and what depends on them; those, and what they depend on.
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
  """What runs next of what is ready: one, or a product and a collective."""
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
  """Whether a product runs in parallel, so that a collective can run beside."""
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
  """Of a product, or a fusion that holds some; 0 of all else."""
  products = matrix_products.of_instruction(module, computation, instruction)
  return sum(product.flops // 2 for product in products)


def _is_collective(instruction: hlo.Instruction) -> bool:
  return instruction.opcode in collectives.KINDS


def _needs(
  computation: hlo.Computation, buffers: aliasing.Buffers
) -> dict[int, set[int]]:
  """What has to run before each instruction.

  Its operands; whatever touched, in the old order, memory that it writes, or
  wrote memory that it touches; and the collective before a collective, whose
  order all hosts have to agree on.
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
  """Puts an order into the module's proto, with what keeps operands alive."""
  ids: list[int] = []
  in_flight: dict[int, hlo.Instruction] = {}

  def keep_operands_of(instruction: hlo.Instruction) -> None:
    """By a tuple of them, which takes no time."""
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
