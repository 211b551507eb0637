# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Loops around a collective: whether a trip only adds its result to a sum."""

from __future__ import annotations

from lagom_xla.explain import subject as subject_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo

_REDUCTIONS = frozenset(["all-reduce", "reduce-scatter"])
# What a kernel may do beside adding, so that sums can be taken first.
_ALLOWED = frozenset(
  [*("add", "convert", "fusion", "reshape", "copy"), *collectives_lib.NOPS]
)


def adds_up(subject: subject_lib.Subject) -> bool:
  """Whether a loop's trips reduce values only to add them up.

  The instruction that takes the result then adds, reads a value that the loop
  carries, and is what the loop carries on in its place.
  """
  if subject.collective.kind not in _REDUCTIONS or subject.user is None:
    return False
  computation, user = subject.place.computation, subject.user
  opcodes = _opcodes(subject.step.analysis.module, user)
  if "add" not in opcodes or not opcodes <= _ALLOWED:
    return False
  carried = {_carried(computation, i) for i in computation.operands(user)}
  root = computation.root
  returned = {
    at
    for at, made in enumerate(computation.operands(root))
    if computation.behind(made, collectives_lib.NOPS).id == user.id
  }
  return root.opcode == "tuple" and not carried.isdisjoint(returned)


def _opcodes(module: hlo.Module, instruction: hlo.Instruction) -> set[str]:
  found = {instruction.opcode}
  for callee in instruction.called_computation_ids:
    found |= module.computations[callee].opcodes
  return found


def _carried(computation: hlo.Computation, operand: hlo.Instruction) -> int:
  """Index of the value of the loop that an operand is; -1 if it is none."""
  taken = computation.behind(operand, ("bitcast",))
  if taken.opcode != "get-tuple-element":
    return -1
  (of,) = computation.operands(taken)
  return taken.tuple_index if of.opcode == "parameter" else -1
