# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The order in which XLA:CPU runs a module, with collectives behind products.

XLA:CPU starts what is ready in the order of the schedule, on the threads that
it has, and a collective holds its thread until it is done. By default
collectives come first and everything waits. Where a product that neither needs
a collective nor is needed by it stands right in front of it, the two run at the
same time.

Buffers are assigned after this pass, by the new order: the result of a
collective could get memory that the product beside it still reads, and would
wait for it. So the product's operands are kept alive past the collective, by a
tuple of them that nobody uses.

    xla.register_hlo_module_transformation(
      functools.partial(order.rewrite, name), stage=POST_SCHEDULER, ...
    )
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import math

from lagom_xla.passes import collectives
from lagom_xla.passes import edit
from lagom_xla.passes import hlo
from lagom_xla.passes import hlo_pb2
from lagom_xla.passes.schedule import aliasing

# Smaller products are over before another thread has woken up: 256 x 256 x 512
# multiplications are one of these, 512 x 512 x 512 are not (measured here).
_LEAST_MULTIPLICATIONS = 64 << 20

_TUPLE = 13  # xla_data.proto, enum PrimitiveType.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
  """A computation in its new order.

  Attributes:
    instructions: all of its instructions.
    behind: collective -> the product that it was put behind, by their ids.
  """

  instructions: tuple[hlo.Instruction, ...]
  behind: dict[int, int]


def rewrite(name: str, serialized: bytes) -> bytes | None:
  """A pass for POST_SCHEDULER.

  Args:
    name: of the module to rewrite; others stay as they are.
    serialized: an HloModuleProto.

  Returns:
    The module in its new order; None where no collective found a product.
  """
  proto = hlo_pb2.HloModuleProto.FromString(serialized)
  if proto.name != name:
    return None
  return put_behind_products(hlo.Module(proto))


def put_behind_products(module: hlo.Module) -> bytes | None:
  """The module with collectives behind products, serialized; see `rewrite`."""
  buffers, editor = aliasing.of(module), edit.Editor(module)
  is_changed = False
  for computation in module.computations.values():
    if not any(map(_is_collective, computation.instructions)):
      continue
    found = order_of(module, computation, buffers)
    if found.behind:
      is_changed = True
      _write(module, computation, found, editor)
  return module.proto.SerializeToString() if is_changed else None


def order_of(
  module: hlo.Module, computation: hlo.Computation, buffers: aliasing.Buffers
) -> Order:
  """Lists a computation anew.

  Products wait until a collective is ready as well, and a collective until a
  product is, as long as there is anything else to run.
  """
  waits_for = _needs(computation, buffers)
  left, done = list(computation.instructions), set[int]()
  ordered: list[hlo.Instruction] = []
  behind: dict[int, int] = {}

  def take(instruction: hlo.Instruction) -> None:
    left.remove(instruction)
    ordered.append(instruction)
    done.add(instruction.id)

  while left:
    ready = [i for i in left if waits_for[i.id] <= done]
    collective = next(filter(_is_collective, ready), None)
    products = [i for i in ready if num_multiplications(module, i)]
    held = {i.id for i in products}
    other = next(
      (i for i in ready if i.id not in held and not _is_collective(i)), None
    )
    if other is not None:
      take(other)
    elif collective is None:
      take(products[0])
    else:
      if products:
        product = max(products, key=lambda i: num_multiplications(module, i))
        take(product)
        behind[collective.id] = product.id
      take(collective)
  return Order(instructions=tuple(ordered), behind=behind)


def num_multiplications(
  module: hlo.Module, instruction: hlo.Instruction
) -> int:
  """Of a large product, or a fusion that holds one; 0 of all else."""
  count = 0
  if instruction.opcode == "dot":
    count = _dot_multiplications(module, instruction)
  elif instruction.opcode == "fusion":
    for callee_id in instruction.called_computation_ids:
      count += sum(
        _dot_multiplications(module, i)
        for i in module.computations[callee_id].instructions
        if i.opcode == "dot"
      )
  return count if count >= _LEAST_MULTIPLICATIONS else 0


def _dot_multiplications(module: hlo.Module, dot: hlo.Instruction) -> int:
  home = next(c for c in module.computations.values() if dot.id in c.by_id)
  sizes = home.by_id[dot.operand_ids[0]].shape.dimensions
  contracted = dot.dot_dimension_numbers.lhs_contracting_dimensions
  return hlo.num_elements(dot.shape) * math.prod(sizes[d] for d in contracted)


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
  needs: dict[int, set[int]] = {}
  before: list[tuple[int, aliasing.Access]] = []
  last_collective: int | None = None
  for instruction in computation.instructions:
    access = buffers.access(computation, instruction)
    needs[instruction.id] = {
      *instruction.operand_ids,
      *instruction.control_predecessor_ids,
      *(id_ for id_, other in before if access.conflicts(other)),
    }
    if _is_collective(instruction):
      if last_collective is not None:
        needs[instruction.id].add(last_collective)
      last_collective = instruction.id
    before.append((instruction.id, access))
  return needs


def _write(
  module: hlo.Module,
  computation: hlo.Computation,
  order: Order,
  editor: edit.Editor,
) -> None:
  """Puts an order into the module's proto, with what keeps operands alive."""
  ids: list[int] = []
  for instruction in order.instructions:
    ids.append(instruction.id)
    if instruction.id in order.behind:
      product = computation.by_id[order.behind[instruction.id]]
      kept = _kept_alive(computation, computation.operands(product), editor)
      computation.proto.instructions.append(kept)
      ids.append(kept.id)
  sequence = module.proto.schedule.sequences[computation.id]
  sequence.instruction_ids[:] = ids


def _kept_alive(
  computation: hlo.Computation,
  operands: Sequence[hlo.Instruction],
  editor: edit.Editor,
) -> hlo.Instruction:
  """A tuple of values, which takes no time."""
  shape = hlo.Shape(
    element_type=_TUPLE, tuple_shapes=[operand.shape for operand in operands]
  )
  return hlo.Instruction(
    name=editor.new_name("kept_alive"),
    opcode="tuple",
    shape=shape,
    id=editor.new_id(computation),
    operand_ids=[operand.id for operand in operands],
  )
