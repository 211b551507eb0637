# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fills: kernels that fill with zeros what a loop overwrites anyway.

A scan stacks what its iterations give in arrays that are full of zeros when it
begins. XLA can begin with arrays as they come instead, where every iteration
writes a row of its own and nothing reads one before it is written
(DusAccumulatorZeroInitElimination, in xla/backends/gpu/transforms).
"""

from __future__ import annotations

from collections.abc import Iterator

from lagom_xla.passes import hlo

# What passes a whole array on as it is.
_SAME = frozenset(["bitcast", "copy", "reshape"])
# What runs the instructions of another computation; from JAX 0.12 on XLA writes
# rows beside kernels.
_RUNS = frozenset(["fusion", "async-start"])


def find(module: hlo.Module) -> list[hlo.Instruction]:
  """The fills of a scheduled module that XLA can leave out."""
  return [
    computation.by_id[id_]
    for computation in module.computations.values()
    for id_ in _of_loops(module, computation)
  ]


def _of_loops(
  module: hlo.Module, computation: hlo.Computation
) -> Iterator[int]:
  """Ids of the fills of a computation's loops that XLA can leave out.

  XLA doubles loops later, so a loop that holds two iterations had twice as many
  when it looked. Of several arrays that one kernel fills, it can leave out
  some; nothing is foretold of those.
  """
  for loop in computation.loops:
    body_id, _ = loop.called_computation_ids
    body = module.computations[body_id]
    state = computation.by_id[loop.operand_ids[0]]
    num_trips = module.trip_count(loop)
    for element, id_ in enumerate(state.operand_ids):
      rows = computation.by_id[id_].shape.dimensions[:1]
      if (
        list(rows) in ([num_trips], [2 * num_trips])
        and _is_fill(module, computation.by_id[id_])
        and len(_users(computation, id_)) == 1
        and _is_stacked(module, body, element)
      ):
        yield id_


def _is_fill(module: hlo.Module, instruction: hlo.Instruction) -> bool:
  """Whether a kernel gives every element of an array one constant value."""
  if instruction.opcode != "fusion":
    return False
  fused = module.computations[instruction.called_computation_ids[0]]
  value = fused.behind(fused.root, _SAME)
  if instruction.operand_ids or value.opcode != "broadcast":
    return False
  (filled_with,) = fused.operands(value)
  return not filled_with.shape.dimensions


def _is_stacked(
  module: hlo.Module, body: hlo.Computation, element: int
) -> bool:
  """Whether a body writes rows of an element of its state, and reads none."""
  parameter = next(i for i in body.instructions if i.opcode == "parameter")
  taken = [i for i in _users(body, parameter.id) if i.tuple_index == element]
  return len(taken) == 1 and _is_overwritten(module, body, taken[0])


def _is_overwritten(
  module: hlo.Module, computation: hlo.Computation, array: hlo.Instruction
) -> bool:
  """Whether all that uses an array writes rows into it."""
  users = _users(computation, array.id)
  return bool(users) and all(
    _overwrites(module, computation, user, array) for user in users
  )


def _overwrites(
  module: hlo.Module,
  computation: hlo.Computation,
  user: hlo.Instruction,
  array: hlo.Instruction,
) -> bool:
  if user.opcode == "bitcast":
    return _is_overwritten(module, computation, user)
  operand = list(user.operand_ids).index(array.id)
  if user.opcode in _RUNS:
    fused = module.computations[user.called_computation_ids[0]]
    parameter = next(
      i
      for i in fused.instructions
      if i.opcode == "parameter" and i.parameter_number == operand
    )
    return _is_overwritten(module, fused, parameter)
  if user.opcode != "dynamic-update-slice" or operand:
    return False
  update = computation.by_id[user.operand_ids[1]].shape.dimensions
  sizes = zip(update, array.shape.dimensions, strict=True)
  return [part for part, whole in sizes if part != whole] == [1]


def _users(computation: hlo.Computation, id_: int) -> list[hlo.Instruction]:
  return [i for i in computation.instructions if id_ in i.operand_ids]
