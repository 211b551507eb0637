# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Schedules an HLO module that was partitioned but not yet optimized.

XLA's own benchmark modules, and dumps `*.before_optimizations.txt`, are of this
kind. JAX compiles StableHLO only, so the module goes back to it first. In the
way stand shardings and mesh symbols of the partitioner that already ran, and
`copy`, which StableHLO lacks (before optimization a copy changes nothing but a
layout that XLA will choose anew). They are taken out. Library calls that this
process does not know, such as Transformer Engine's attention, are left as they
are: a schedule needs no code for them, and a full compile, which only serves to
see the memory that the module needs, mocks them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from jax._src import compiler
from jax._src.interpreters import mlir
from jax._src.lib import _jax
from jax._src.lib import xla_client
from jax._src.lib.mlir import ir
import numpy as np

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import compiler as compile_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import combine
from lagom_xla.passes import hlo
from lagom_xla.passes import registry
from lagom_xla.passes import replica_groups

# Makes XLA generate code for library calls that this process does not know.
_MOCK_CALLS: compile_lib.Options = {"xla_gpu_mock_custom_calls": True}


def schedule_module(
  module: hlo.Module,
  cluster: cluster_lib.Cluster,
  *,
  options: compile_lib.Options | None = None,
  groups: combine.Groups | None = None,
) -> hlo.Module:
  """Runs XLA's optimizations and scheduler on a module.

  Args:
    module: partitioned, not optimized.
    cluster: must have as many devices as the module has partitions.
    options: XLA options on top of the defaults.
    groups: collectives to combine; None leaves it to XLA.

  Raises:
    CompileError: the sizes differ, or XLA refused.
    CombineError: the module cannot have these groups.
  """
  proto = compile_lib.schedule(
    _compile_fn(module, cluster),
    module.name,
    cluster,
    options or {},
    groups=groups,
  )
  return hlo.Module(proto, cluster.num_devices)


def unscheduled_module(
  module: hlo.Module,
  cluster: cluster_lib.Cluster,
  *,
  options: compile_lib.Options | None = None,
) -> hlo.Module:
  """Runs XLA's optimizations on a module, up to where it combines collectives.

  Args:
    module: partitioned, not optimized.
    cluster: must have as many devices as the module has partitions.
    options: XLA options on top of the defaults.

  Raises:
    CompileError: the sizes differ, or XLA refused.
  """
  proto = compile_lib.unscheduled(
    _compile_fn(module, cluster), module.name, cluster, options or {}
  )
  return hlo.Module(proto, cluster.num_devices)


def compile_module(
  module: hlo.Module,
  cluster: cluster_lib.Cluster,
  *,
  options: compile_lib.Options | None = None,
  groups: combine.Groups | None = None,
) -> compile_lib.Compilation:
  """Compiles a module to its end; nothing runs what comes out.

  Args:
    module: partitioned, not optimized.
    cluster: must have as many devices as the module has partitions.
    options: XLA options on top of the defaults.
    groups: collectives to combine; None leaves it to XLA.

  Raises:
    CompileError: the sizes differ, or XLA refused.
    CombineError: the module cannot have these groups.
  """
  options = {**_MOCK_CALLS, **(options or {})}
  if groups is not None and not registry.keeps_donation():
    unscheduled = unscheduled_module(module, cluster, options=options)
    return compile_regrouped(unscheduled, cluster, groups, options=options)
  executable = compile_lib.compile_fully(
    _compile_fn(module, cluster), module.name, cluster, options, groups=groups
  )
  (compiled,) = executable.hlo_modules()
  proto = hlo.hlo_pb2.HloModuleProto.FromString(
    compiled.as_serialized_hlo_module_proto()
  )
  return compile_lib.Compilation(
    module=hlo.Module(proto, cluster.num_devices),
    compiled=None,
    peak_bytes=compile_lib.peak_bytes(executable.get_compiled_memory_stats()),
  )


def schedule_regrouped(
  unscheduled: hlo.Module,
  cluster: cluster_lib.Cluster,
  groups: combine.Groups,
  *,
  options: compile_lib.Options | None = None,
) -> hlo.Module:
  """Schedules a module with combine groups without a pass.

  As `compile_regrouped`: XLA schedules by the memory that a step needs, which
  is another where donated inputs are forgotten.

  Raises:
    CompileError: the sizes differ, or XLA refused.
    CombineError: the module cannot have these groups.
  """
  rewritten = hlo.load(combine.rewrite(unscheduled, groups))
  return schedule_module(
    rewritten, cluster, options=combine.options(groups, options)
  )


def compile_regrouped(
  unscheduled: hlo.Module,
  cluster: cluster_lib.Cluster,
  groups: combine.Groups,
  *,
  options: compile_lib.Options | None = None,
) -> compile_lib.Compilation:
  """Compiles a module with combine groups to its end, without a pass.

  Where a pass makes XLA forget donated inputs (`registry.keeps_donation`), the
  memory that a module needs is seen by starting anew from the module that the
  pass would return: it says itself what is donated.

  Args:
    unscheduled: from before XLA's combiners.
    cluster: must have as many devices as the module has partitions.
    groups: collectives to combine.
    options: XLA options on top of the defaults.

  Raises:
    CompileError: the sizes differ, or XLA refused.
    CombineError: the module cannot have these groups.
  """
  rewritten = hlo.load(combine.rewrite(unscheduled, groups))
  return compile_module(
    rewritten, cluster, options=combine.options(groups, options)
  )


def _compile_fn(
  module: hlo.Module, cluster: cluster_lib.Cluster
) -> Callable[[compile_lib.Options], Any]:
  """Compiles the module with the options it is given."""
  check_devices(module, cluster)
  devices = compile_lib.devices(cluster)
  client = devices[0].client
  stablehlo = _to_stablehlo(module, cluster)

  def compile_with(options: compile_lib.Options) -> Any:
    overrides = dict(options)
    profile = overrides.pop("fdo_profile", None)  # Not one of XLA's flags.
    compile_options = compiler.get_compile_options(
      num_replicas=1,
      num_partitions=cluster.num_devices,
      device_assignment=np.arange(cluster.num_devices).reshape(1, -1),
      env_options_overrides=cast(dict[str, str], overrides),
      fdo_profile=cast(bytes | None, profile),
      backend=client,
    )
    build_options = compile_options.executable_build_options
    build_options.use_spmd_partitioning = False
    build_options.use_shardy_partitioner = False
    return client.compile(
      stablehlo, xla_client.DeviceList(tuple(devices)), compile_options
    )

  return compile_with


def check_devices(module: hlo.Module, cluster: cluster_lib.Cluster) -> None:
  """Checks that a module was partitioned for the size of a cluster."""
  wanted = collectives.num_devices(module)
  if wanted is not None and wanted != cluster.num_devices:
    raise errors.CompileError(
      f"{module.name} was partitioned for {wanted} devices, and"
      f" {cluster.name} has {cluster.num_devices}. Name a cluster with"
      f" {wanted}."
    )


def _to_stablehlo(
  module: hlo.Module, cluster: cluster_lib.Cluster
) -> ir.Module:
  stripped = _strip(module.proto)
  try:
    serialized = _jax.mlir.hlo_to_stablehlo(stripped.SerializeToString())
  except Exception as error:
    raise errors.CompileError(
      f"{compile_lib.describe(cluster, {})}: {module.name} has no StableHLO"
      f" form: {errors.first_line(error)}"
    ) from error
  with mlir.make_ir_context():
    stablehlo = ir.Module.parse(serialized)
    attributes = stablehlo.operation.attributes
    attributes["sym_name"] = ir.StringAttr.get(module.name)
    for name in [n for n in attributes if n.startswith("mhlo.spmd_")]:
      del attributes[name]
    stablehlo.operation.walk(_drop_tilings)
  return stablehlo


def _drop_tilings(operation: ir.Operation) -> ir.WalkResult:
  """Newer jaxlibs write this attribute and cannot serialize it again."""
  if "result_tilings" in operation.attributes:
    del operation.attributes["result_tilings"]
  return ir.WalkResult.ADVANCE


def _strip(proto: hlo.hlo_pb2.HloModuleProto) -> hlo.hlo_pb2.HloModuleProto:
  """A copy without partitioner leftovers and `copy` instructions."""
  stripped = hlo.hlo_pb2.HloModuleProto()
  stripped.CopyFrom(proto)
  stripped.ClearField("frontend_attributes")
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
      instruction.ClearField("sharding")
      _list_groups(instruction)
      attributes = instruction.frontend_attributes.map
      for key in [k for k in attributes if k.startswith("xla.sdy")]:
        del attributes[key]
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
