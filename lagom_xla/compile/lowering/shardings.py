# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Shardings of an HLO module: those that a partitioner still has to act on.

`--xla_dump_to` writes modules `before_optimizations` with the shapes of whole
arrays, and so does `Lowered.compiler_ir("hlo")`. XLA:GPU's first pass is the
partitioner, Shardy or GSPMD, which makes of them the program of one device. In
the proto nothing says which of the two a module is; what it holds does.
"""

from __future__ import annotations

import math
import re

from lagom_xla.jax_internals import op_shardings
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo

# Marks of JAX for the partitioner, which takes them out.
_GSPMD_MARKS = frozenset(
  ["Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"]
)
_SHARDY_MARK = "xla.sdy."
_SHARDY_MESHES = "xla.sdy.meshes"


def partitioner(module: hlo.Module) -> str | None:
  """The partitioner that a module is for: "shardy" or "gspmd".

  None where one has acted already. Where only parameters and results are
  sharded, which the partitioner leaves as they were, a module without any
  communication is taken for one that no partitioner has seen.
  """
  if module.is_scheduled:
    return None
  instructions = [
    instruction
    for computation in module.computations.values()
    for instruction in computation.instructions
  ]
  is_marked = any(
    instruction.custom_call_target in _GSPMD_MARKS
    or instruction.custom_call_target.startswith(_SHARDY_MARK)
    for instruction in instructions
  )
  communicates = any(
    collectives.kind_of(i) or i.opcode == "partition-id" for i in instructions
  )
  if not is_marked and (communicates or num_devices(module) is None):
    return None
  is_named = any(
    op_shardings.is_named_sharding(instruction.sharding.SerializeToString())
    for instruction in instructions
    if instruction.HasField("sharding")
  )
  return "shardy" if is_told_to_shardy(module) or is_named else "gspmd"


def is_told_to_shardy(module: hlo.Module) -> bool:
  """Whether all shardings are in frontend attributes, which Shardy reads.

  From JAX 0.12 on they are in the shardings themselves, as names of axes.
  """
  return _SHARDY_MESHES in module.proto.frontend_attributes.map


def num_devices(module: hlo.Module) -> int | None:
  """Devices that a module's shardings split arrays over; None without any."""
  meshes = module.proto.frontend_attributes.map.get(_SHARDY_MESHES, "")
  sizes = [
    math.prod(map(int, re.findall(r'"=(\d+)', axes)))
    for axes in re.findall(r"#sdy\.mesh<\[(.*?)\]", meshes)
  ]
  sizes += [
    op_shardings.num_devices_of_sharding(
      instruction.sharding.SerializeToString()
    )
    for computation in module.computations.values()
    for instruction in computation.instructions
    if instruction.HasField("sharding")
  ]
  largest = max(sizes, default=1)
  return largest if largest > 1 else None
