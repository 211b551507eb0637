# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The fingerprint by which a plan knows the module that it was made for."""

from __future__ import annotations

import hashlib

from lagom_xla.passes import hlo
from lagom_xla.passes import replica_groups


def fingerprint(module: hlo.Module) -> str:
  """A short hash of what a module computes, in which order, among whom.

  Names, ids and source locations are left out: they change with the path of a
  checkout. So are the values of constants, which change no schedule.
  """
  digest = hashlib.sha256()
  for computation in module.computations.values():
    for instruction in computation.instructions:
      parts = (
        instruction.opcode,
        instruction.shape.SerializeToString(deterministic=True),
        [computation.position[i] for i in instruction.operand_ids],
        instruction.custom_call_target,
        instruction.dot_dimension_numbers.SerializeToString(),
        replica_groups.of_instruction(instruction, None),
      )
      digest.update(repr(parts).encode())
  return digest.hexdigest()[:16]
