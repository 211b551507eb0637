# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Users of HLO instructions: their order, which a written module does not tell.

XLA keeps, for each instruction, those that read it, in an order that depends on
every pass before, and breaks ties by that order, too. Written down and read
again, a module has its users in the order in which it lists them.
"""

from __future__ import annotations

import heapq

from lagom_xla.compile.fused import used_names
from lagom_xla.passes import hlo_pb2


def with_users_turned(
  module: hlo_pb2.HloModuleProto,
) -> hlo_pb2.HloModuleProto:
  """The same module, with users and used-up names as different as can be.

  What XLA makes alike of both depends on neither.
  """
  other = hlo_pb2.HloModuleProto()
  other.CopyFrom(module)
  running = used_names.running(module)
  for computation in other.computations:
    if computation.id in running:
      ordered = [
        hlo_pb2.HloInstructionProto.FromString(i.SerializeToString())
        for i in _last_first(_that_count(computation))
      ]
      del computation.instructions[:]
      computation.instructions.extend(ordered)
  return other


def _that_count(
  computation: hlo_pb2.HloComputationProto,
) -> list[hlo_pb2.HloInstructionProto]:
  """The instructions but for constants that nothing reads."""
  read = {o for i in computation.instructions for o in i.operand_ids}
  read.add(computation.root_id)
  return [
    i
    for i in computation.instructions
    if i.opcode != "constant" or i.id in read
  ]


def _last_first(
  instructions: list[hlo_pb2.HloInstructionProto],
) -> list[hlo_pb2.HloInstructionProto]:
  """Instructions after all they depend on, else the last ones first."""
  position = {i.id: n for n, i in enumerate(instructions)}
  depends_on = {
    i.id: {*i.operand_ids, *i.control_predecessor_ids} for i in instructions
  }
  users: dict[int, list[int]] = {i.id: [] for i in instructions}
  for user, others in depends_on.items():
    for other in others:
      users[other].append(user)
  ready = [-position[i] for i, others in depends_on.items() if not others]
  heapq.heapify(ready)
  num_missing = {i: len(others) for i, others in depends_on.items()}
  ordered = []
  while ready:
    instruction = instructions[-heapq.heappop(ready)]
    ordered.append(instruction)
    for user in users[instruction.id]:
      num_missing[user] -= 1
      if not num_missing[user]:
        heapq.heappush(ready, -position[user])
  return ordered
