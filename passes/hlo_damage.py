# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Damage to an HLO module: what everything else relies on, and is not so.

A proto that decodes may still be cut short or changed. XLA's own verifier
comes only with jaxlib's loader, which `hlo_source.py` does without.
"""

from __future__ import annotations

from lagom_xla import errors
from lagom_xla.passes import hlo_pb2


def check(proto: hlo_pb2.HloModuleProto, name: str) -> None:
  """Checks that what a module refers to is there, and that arrays are whole.

  Args:
    proto: the module.
    name: what messages call its source.

  Raises:
    HloError: the module is damaged; the message says where.
  """
  computations = {c.id for c in proto.computations}
  if proto.entry_computation_id not in computations:
    raise errors.HloError(
      f"{name} has no entry computation (id {proto.entry_computation_id});"
      " it may be truncated."
    )
  for computation in proto.computations:
    _check_references(proto, computation, name)
    for instruction in computation.instructions:
      _check_calls(proto, instruction, computations, name)
      _check_shape(instruction, instruction.shape, name)


def _check_references(
  proto: hlo_pb2.HloModuleProto,
  computation: hlo_pb2.HloComputationProto,
  name: str,
) -> None:
  """Checks that roots, operands and what is scheduled are there."""
  ids = {i.id for i in computation.instructions}
  scheduled = proto.schedule.sequences.get(computation.id)
  wanted = {computation.root_id}
  wanted.update(scheduled.instruction_ids if scheduled else ())
  for instruction in computation.instructions:
    wanted.update(instruction.operand_ids)
  if not ids.issuperset(wanted):
    raise errors.HloError(
      f"{name}: computation {computation.name} refers to instructions that"
      " it lacks; it may be truncated."
    )


def _check_calls(
  proto: hlo_pb2.HloModuleProto,
  instruction: hlo_pb2.HloInstructionProto,
  computations: set[int],
  name: str,
) -> None:
  if not computations.issuperset(instruction.called_computation_ids):
    raise errors.HloError(
      f"{name}: {instruction.name} calls a computation that the module"
      " lacks; it may be truncated."
    )
  if instruction.backend_config_payload.id >= max(len(proto.payloads), 1):
    raise errors.HloError(
      f"{name}: {instruction.name} has its backend_config in a table that"
      " the module lacks; it may be truncated."
    )


def _check_shape(
  instruction: hlo_pb2.HloInstructionProto,
  shape: hlo_pb2.ShapeProto,
  name: str,
) -> None:
  """Checks that a layout orders the dimensions of its array, each once."""
  for part in shape.tuple_shapes:
    _check_shape(instruction, part, name)
  order = shape.layout.minor_to_major
  if order and sorted(order) != list(range(len(shape.dimensions))):
    raise errors.HloError(
      f"{name}: {instruction.name} has {len(shape.dimensions)} dimensions and"
      f" a layout of {list(order)}; the file is damaged."
    )
