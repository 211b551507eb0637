# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Digests: what two equal schedules have in common, down to their names.

XLA compiles the same program to the same module, names and all, whatever the
options say that do not act on it; a test holds it to that. Only ids count what
its process made, stack frames are numbered in the order in which that process
met them, and names inside kernels depend on where the compile began
(`compile/fused/after_fusion.py`).
"""

from __future__ import annotations

import hashlib

from lagom_xla.compile.fused import used_names
from lagom_xla.passes import hlo

_Instruction = hlo.hlo_pb2.HloInstructionProto


def of(module: hlo.Module) -> str:
  """A hash of everything in a module but ids, source lines and inner names."""
  proto = module.proto
  running = used_names.running(proto)
  digest = hashlib.sha256(_of_the_rest(proto))
  ids = {c.id: n for n, c in enumerate(proto.computations)}
  for computation in proto.computations:
    has_name = computation.id in running
    ordered = used_names.in_order(proto, computation)
    ids.update({i.id: n for n, i in enumerate(ordered)})
    digest.update(f"{computation.name if has_name else ''}{{".encode())
    digest.update(f"{ids[computation.root_id]} {len(ordered)}".encode())
    for instruction in ordered:
      digest.update(_canonical(instruction, ids, has_name))
  return digest.hexdigest()


def _of_the_rest(proto: hlo.hlo_pb2.HloModuleProto) -> bytes:
  rest = hlo.hlo_pb2.HloModuleProto()
  rest.CopyFrom(proto)
  for field in (
    "id",
    "stack_frame_index",
    "computations",
    "schedule",
    "entry_computation_id",
  ):
    rest.ClearField(field)
  return rest.SerializeToString(deterministic=True)


def _canonical(
  instruction: _Instruction, ids: dict[int, int], has_name: bool
) -> bytes:
  """An instruction with positions in place of ids, as bytes."""
  known = instruction.metadata
  canonical = _Instruction()
  canonical.CopyFrom(instruction)
  canonical.metadata.CopyFrom(
    hlo.hlo_pb2.OpMetadata(
      op_name=known.op_name, scheduling_name=known.scheduling_name
    )
  )
  # What is DEFAULT for all operands is gone once XLA has read a library call
  # from a module that it wrote down.
  if canonical.HasField("precision_config"):
    precision = canonical.precision_config
    if not any(precision.operand_precision):
      precision.ClearField("operand_precision")
  canonical.ClearField("id")
  if not has_name:
    canonical.ClearField("name")
    canonical.metadata.ClearField("scheduling_name")
  for references in (
    canonical.operand_ids,
    canonical.control_predecessor_ids,
    canonical.called_computation_ids,
  ):
    references[:] = [ids[i] for i in references]
  return canonical.SerializeToString(deterministic=True)
