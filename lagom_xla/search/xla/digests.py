# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Digests: what two equal schedules have in common, down to their names.

XLA compiles the same program to the same module, names and all, whatever the
options say that do not act on it; a test holds it to that. Only the module's
own id counts the modules that its process made, and stack frames are numbered
in the order in which that process met them.
"""

from __future__ import annotations

import hashlib

from lagom_xla.passes import hlo


def of(module: hlo.Module) -> str:
  """A hash of everything in a module but its id and source lines."""
  proto = hlo.hlo_pb2.HloModuleProto()
  proto.CopyFrom(module.proto)
  proto.ClearField("id")
  proto.ClearField("stack_frame_index")
  for computation in proto.computations:
    for instruction in computation.instructions:
      known = instruction.metadata
      instruction.metadata.CopyFrom(
        hlo.hlo_pb2.OpMetadata(
          op_name=known.op_name, scheduling_name=known.scheduling_name
        )
      )
  serialized = proto.SerializeToString(deterministic=True)
  return hashlib.sha256(serialized).hexdigest()
