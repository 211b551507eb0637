# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""StableHLO of an HLO module that XLA has not optimized yet.

JAX compiles only StableHLO, so a module is converted back first. StableHLO
lacks `copy`, which before optimization only changes a layout that XLA will
choose again. A partitioned module also has shardings and mesh symbols of the
partitioner that already ran. Both are removed.

Modules `before_optimizations`, and `Lowered.compiler_ir("hlo")`, have the
shapes of whole arrays. XLA:GPU's first pass is the partitioner, Shardy or
GSPMD, which turns them into the program of one device. Nothing in the proto
says which of the two a module needs, so its contents decide (`partitioner`).

JAX gives arguments and results in host memory an attribute, which XLA turns
into a layout when it compiles. Other conversions lose it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import itertools
import math
import re
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from lagom_xla import errors
from lagom_xla.jax_internals import lowerings
from lagom_xla.jax_internals import request
from lagom_xla.passes import collectives
from lagom_xla.passes import copies
from lagom_xla.passes import hlo
from lagom_xla.passes import replica_groups
from lagom_xla.passes.program import mlir

# JAX's marks for the partitioner, which removes them.
_GSPMD_MARKS = frozenset(
  ["Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"]
)
_SHARDY_MARK = "xla.sdy."
_SHARDY_MESHES = "xla.sdy.meshes"


def partitioner(module: hlo.Module) -> str | None:
  """The partitioner that a module is for: "shardy" or "gspmd".

  None if one has already run. If only parameters and results have shardings,
  which partitioners keep, a module without communication counts as not
  partitioned.
  """
  if module.is_scheduled:
    return None
  instructions = [*module.instructions]
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
    lowerings.is_named_sharding(instruction.sharding.SerializeToString())
    for instruction in instructions
    if instruction.HasField("sharding")
  )
  return "shardy" if _is_told_to_shardy(module) or is_named else "gspmd"


def _is_told_to_shardy(module: hlo.Module) -> bool:
  """Whether all shardings are in frontend attributes, as before JAX 0.12."""
  return _SHARDY_MESHES in module.proto.frontend_attributes.map


def num_devices(module: hlo.Module) -> int | None:
  """Devices that a module's shardings span; None without shardings."""
  meshes = module.proto.frontend_attributes.map.get(_SHARDY_MESHES, "")
  sizes = [
    math.prod(map(int, re.findall(r'"=(\d+)', axes)))
    for axes in re.findall(r"#sdy\.mesh<\[(.*?)\]", meshes)
  ]
  sizes += [
    lowerings.num_devices_of_sharding(instruction.sharding.SerializeToString())
    for instruction in module.instructions
    if instruction.HasField("sharding")
  ]
  largest = max(sizes, default=1)
  return largest if largest > 1 else None


_KIND = "mhlo.memory_kind"
_HOST = "pinned_host"


def _into_stablehlo(module: hlo.Module, program: ir.Module) -> None:
  """Copies host-memory marks from a module to the program converted from it."""
  main = mlir.functions_by_name(program.operation)["main"]
  for role, shapes in _shapes(module):
    on_host = [copies.is_on_host(shape) for shape in shapes]
    if any(on_host):
      kind = {_KIND: ir.StringAttr.get(_HOST)}
      known = _attributes(main, role) or [{} for _ in shapes]
      for of_one, is_there in zip(known, on_host, strict=True):
        of_one.update(kind if is_there else {})
      _set_attributes(main, role, known)


def into_hlo(program: ir.Module, module: hlo.Module) -> None:
  """Copies host-memory marks from a program to the module converted from it."""
  main = mlir.functions_by_name(program.operation)["main"]
  for role, shapes in _shapes(module):
    for shape, of_one in zip(shapes, _attributes(main, role), strict=False):
      if _KIND in of_one and ir.StringAttr(of_one[_KIND]).value == _HOST:
        copies.put_on_host(shape)


def _shapes(module: hlo.Module) -> Iterator[tuple[str, Sequence[hlo.Shape]]]:
  """The layouts of a module's parameters and results."""
  shape = module.proto.host_program_shape
  yield "arg_attrs", shape.parameters
  yield "res_attrs", shape.result.tuple_shapes or [shape.result]


def _attributes(function: ir.Operation, role: str) -> list[dict[str, Any]]:
  """The attributes of each argument or result; empty if none has any."""
  if role not in function.attributes:
    return []
  known: Any = function.attributes[role]
  return [{a.name: a.attr for a in ir.DictAttr(each)} for each in known]


def _set_attributes(
  function: ir.Operation, role: str, of_each: list[dict[str, Any]]
) -> None:
  attributes = list(map(ir.DictAttr.get, of_each))
  function.attributes[role] = ir.ArrayAttr.get(attributes)


_SHARDING = "mhlo.sharding"


def stablehlo_of(module: hlo.Module) -> ir.Module:
  """The module as StableHLO.

  Raises:
    CompileError: it cannot be converted.
  """
  stripped = _without_copies(module)
  if partitioner(module) is None:
    _strip_shardings(stripped)
  try:
    program = request.stablehlo_of_hlo(stripped.SerializeToString())
    with program.context:
      _complete(program, module)
  except Exception as error:
    raise errors.CompileError(
      f"{module.name} has no StableHLO form: {errors.first_line(error)}"
    ) from error
  return program


def _complete(program: ir.Module, module: hlo.Module) -> None:
  """Changes jaxlib's conversion to what JAX would have written."""
  attributes = program.operation.attributes
  attributes["sym_name"] = ir.StringAttr.get(module.name)
  for name in [n for n in attributes if n.startswith("mhlo.spmd_")]:
    del attributes[name]
  for operation in mlir.inner_operations(program.operation):
    # Newer jaxlibs write it but cannot serialize it.
    if "result_tilings" in operation.attributes:
      del operation.attributes["result_tilings"]
    if operation.name == "stablehlo.dot":
      _generalize(operation)
  if _is_told_to_shardy(module):
    for function in program.body.operations:
      _drop_shardings(function.operation)
  _into_stablehlo(module, program)


def _drop_shardings(function: ir.Operation) -> None:
  """Removes GSPMD's shardings from a function that also has Shardy's.

  From those on results XLA infers a program for GSPMD, and then fails on
  Shardy's.
  """
  for role in ("arg_attrs", "res_attrs"):
    known = _attributes(function, role)
    for of_one in known:
      of_one.pop(_SHARDING, None)
    if known:
      _set_attributes(function, role, known)


def _generalize(dot: ir.Operation) -> None:
  """Replaces a plain product by the general one that JAX always writes."""
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
  """Removes shardings and meshes that the partitioner left."""
  proto.ClearField("frontend_attributes")
  for computation in proto.computations:
    for instruction in computation.instructions:
      instruction.ClearField("sharding")
      attributes = instruction.frontend_attributes.map
      for key in [k for k in attributes if k.startswith("xla.sdy")]:
        del attributes[key]


def _without_copies(module: hlo.Module) -> hlo.hlo_pb2.HloModuleProto:
  """A module without `copy`, and with explicit replica groups."""
  stripped = hlo.hlo_pb2.HloModuleProto()
  stripped.CopyFrom(module.proto)
  channels = itertools.count(
    1
    + max(
      (i.channel_id for c in stripped.computations for i in c.instructions),
      default=0,
    )
  )
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
      if (module.num_replicas or 1) > 1 and collectives.kind_of(instruction):
        _name_devices(instruction, module, next(channels))
    computation.root_id = _resolve(computation.root_id, source_of)
    del computation.instructions[:]
    computation.instructions.extend(kept)
  return stripped


def _list_groups(instruction: hlo.Instruction) -> None:
  """Lists replica groups without a mesh, whose symbol StableHLO would need."""
  if instruction.HasField("mesh_axes_replica_group_list"):
    groups = replica_groups.of(instruction, None)
    instruction.ClearField("mesh_axes_replica_group_list")
    for group in groups:
      instruction.collective_device_list.replica_groups.add(replica_ids=group)


def _name_devices(
  instruction: hlo.Instruction, module: hlo.Module, channel: int
) -> None:
  """Replaces a collective's replicas or partitions by devices.

  Modules are compiled for partitions alone, of which each is a device. A
  collective without a channel gets this one.
  """
  of = (instruction, module.num_partitions, module.num_replicas)
  groups, pairs = replica_groups.of(*of), replica_groups.pairs_of(*of)
  instruction.channel_id = instruction.channel_id or channel
  instruction.use_global_device_ids = (
    instruction.opcode in replica_groups.SAY_IDS
  )
  if instruction.source_target_pairs:
    del instruction.source_target_pairs[:]
    for source, target in pairs:
      instruction.source_target_pairs.add(source=source, target=target)
    return
  for name in ("replica_groups", "iota_collective_device_list"):
    instruction.ClearField(name)
  instruction.ClearField("collective_device_list")
  for group in groups:
    instruction.collective_device_list.replica_groups.add(replica_ids=group)


def _resolve(instruction_id: int, source_of: dict[int, int]) -> int:
  while instruction_id in source_of:
    instruction_id = source_of[instruction_id]
  return instruction_id
