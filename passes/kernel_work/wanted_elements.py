# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Wanted elements: what a fusion's results depend on of each of its values.

A fusion computes only those: of an operand that it slices it reads the slice,
and an array that it updates in place it neither reads nor writes outside the
update. So its values are followed back from its root.
"""

from __future__ import annotations

import math

from lagom_xla.passes import hlo
from lagom_xla.passes import matrix_products
from lagom_xla.passes.kernel_work import threads

SLICES = frozenset(["dynamic-slice", "slice", "gather"])
REDUCTIONS = frozenset(["reduce", "reduce-window", "select-and-scatter"])


def of_fusion(fused: hlo.Computation) -> dict[int, int]:
  """Elements of each value in a fusion that its results depend on, by id.

  A fusion computes only those: what is sliced later is never computed whole,
  and what is updated in place is neither read nor written outside the update.
  """
  in_place = {update.id for update in threads.updated_in_place(fused)}
  wanted = dict.fromkeys(fused.by_id, 0)
  wanted[fused.root.id] = hlo.num_elements(fused.root.shape)
  for user in _users_first(fused):
    for index, operand in enumerate(fused.operands(user)):
      whole = hlo.num_elements(operand.shape)
      if user.id in in_place and index == 0:
        continue
      passed = _passed_on(user, index, whole, wanted[user.id])
      wanted[operand.id] = min(wanted[operand.id] + passed, whole)
  return wanted


def _passed_on(
  user: hlo.Instruction, index: int, whole: int, wanted: int
) -> int:
  """Elements of an operand that so many elements of its user depend on."""
  opcode = user.opcode
  if opcode in SLICES and index == 0:
    return wanted
  if opcode in REDUCTIONS:
    return math.ceil(wanted * whole / max(hlo.num_elements(user.shape), 1))
  if opcode in matrix_products.MULTIPLYING or opcode == "tuple":
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
