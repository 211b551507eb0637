# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""StableHLO of an HLO module that XLA has not optimized yet.

XLA's own benchmark modules, and what `--xla_dump_to` writes, are of this kind.
JAX compiles StableHLO only, so the module goes back to it first. In the way
stands `copy`, which StableHLO lacks (before optimization a copy changes nothing
but a layout that XLA will choose anew); and in a module that was partitioned,
the shardings and mesh symbols of the partitioner that already ran. They are
taken out.
"""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from lagom_xla import errors
from lagom_xla.compile.lowering import memory_kinds
from lagom_xla.compile.lowering import shardings
from lagom_xla.jax_internals import untraced
from lagom_xla.passes import hlo
from lagom_xla.passes import replica_groups
from lagom_xla.passes.program.stablehlo import dependence

_SHARDING = "mhlo.sharding"


def of_module(module: hlo.Module) -> ir.Module:
  """The module as StableHLO, for `untraced.compile_stablehlo`.

  Raises:
    CompileError: it has no such form.
  """

  def edit(converted: ir.Module) -> None:
    module_op = converted.operation
    attributes = module_op.attributes
    attributes["sym_name"] = ir.StringAttr.get(module.name)
    for name in [n for n in attributes if n.startswith("mhlo.spmd_")]:
      del attributes[name]
    module_op.walk(_drop_tilings)
    if shardings.is_told_to_shardy(module):
      for function in converted.body.operations:
        _drop_shardings(function.operation)
    for operation in dependence.inner_operations(module_op):
      if operation.name == "stablehlo.dot":
        _generalize(operation)
    memory_kinds.into_stablehlo(module, converted)

  stripped = _without_copies(module.proto)
  if shardings.partitioner(module) is None:
    _strip_shardings(stripped)
  try:
    return untraced.stablehlo_of_hlo(stripped.SerializeToString(), edit)
  except Exception as error:
    raise errors.CompileError(
      f"{module.name} has no StableHLO form: {errors.first_line(error)}"
    ) from error


def _drop_tilings(operation: ir.Operation) -> ir.WalkResult:
  """Newer jaxlibs write this attribute and cannot serialize it again."""
  if "result_tilings" in operation.attributes:
    del operation.attributes["result_tilings"]
  return ir.WalkResult.ADVANCE


def _drop_shardings(function: ir.Operation) -> None:
  """GSPMD's words for what Shardy is told beside them.

  XLA takes those on results for a program of GSPMD's, and then fails over what
  Shardy is told.
  """
  for role in ("arg_attrs", "res_attrs"):
    if role not in function.attributes:
      continue
    of_each: Any = function.attributes[role]
    kept = [
      {a.name: a.attr for a in ir.DictAttr(each) if a.name != _SHARDING}
      for each in of_each
    ]
    function.attributes[role] = ir.ArrayAttr.get(
      list(map(ir.DictAttr.get, kept))
    )


def _generalize(dot: ir.Operation) -> None:
  """Writes a plain product as the general one that JAX writes everywhere."""
  lhs, rhs = dot.operands
  contracted = ir.RankedTensorType(lhs.type).rank - 1
  numbers = stablehlo.DotDimensionNumbers.get(
    lhs_batching_dimensions=[],
    rhs_batching_dimensions=[],
    lhs_contracting_dimensions=[contracted],
    rhs_contracting_dimensions=[0],
  )
  with dot.location, ir.InsertionPoint(dot):
    general = stablehlo.DotGeneralOp(
      dot.results[0].type, lhs, rhs, numbers
    ).operation
  for name, attribute in dot.attributes.items():
    general.attributes[name] = attribute
  dot.results[0].replace_all_uses_with(general.results[0])
  dot.erase()


def _strip_shardings(proto: hlo.hlo_pb2.HloModuleProto) -> None:
  """Takes out what the partitioner left."""
  proto.ClearField("frontend_attributes")
  for computation in proto.computations:
    for instruction in computation.instructions:
      instruction.ClearField("sharding")
      attributes = instruction.frontend_attributes.map
      for key in [k for k in attributes if k.startswith("xla.sdy")]:
        del attributes[key]


def _without_copies(
  proto: hlo.hlo_pb2.HloModuleProto,
) -> hlo.hlo_pb2.HloModuleProto:
  """A module without `copy`, and with its replica groups spelled out."""
  stripped = hlo.hlo_pb2.HloModuleProto()
  stripped.CopyFrom(proto)
  for computation in stripped.computations:
    source_of = {
      i.id: i.operand_ids[0]
      for i in computation.instructions
      if i.opcode == "copy"
    }
    kept = [i for i in computation.instructions if i.opcode != "copy"]
    for instruction in kept:
      for ids in (instruction.operand_ids, instruction.control_predecessor_ids):
        ids[:] = [_resolve(i, source_of) for i in ids]
      _list_groups(instruction)
    computation.root_id = _resolve(computation.root_id, source_of)
    del computation.instructions[:]
    computation.instructions.extend(kept)
  return stripped


def _list_groups(instruction: hlo.Instruction) -> None:
  """Spells replica groups without a mesh, whose symbol StableHLO would need."""
  if instruction.HasField("mesh_axes_replica_group_list"):
    groups = replica_groups.of_instruction(instruction, None)
    instruction.ClearField("mesh_axes_replica_group_list")
    for group in groups:
      instruction.collective_device_list.replica_groups.add(replica_ids=group)


def _resolve(instruction_id: int, source_of: dict[int, int]) -> int:
  while instruction_id in source_of:
    instruction_id = source_of[instruction_id]
  return instruction_id
