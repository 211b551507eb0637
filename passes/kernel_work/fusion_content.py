# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Content of a fusion: what it shares with those of other compiles.

Whatever XLA's options say, most kernels of a program come out the same, down to
the ids inside them. Their names, where they stand and the lines that they were
written in differ, and say nothing of what they do.
"""

from __future__ import annotations

from collections.abc import Iterable
import hashlib

from lagom_xla.passes import hlo


def of_fusion(
  module: hlo.Module,
  computation: hlo.Computation,
  fusion: hlo.Instruction,
) -> bytes | None:
  """A digest that is equal for fusions that do the same.

  Args:
    module: that it is in.
    computation: that it is in.
    fusion: the instruction.

  Returns:
    None where what is said of it names a line of the program: of scatters.
  """
  alone = hlo.Instruction()
  alone.CopyFrom(fusion)
  alone.id = 0
  del alone.operand_ids[:]
  del alone.control_predecessor_ids[:]
  parts = [_config(module, alone), _without_names(alone)]
  parts += [
    operand.shape.SerializeToString(deterministic=True)
    for operand in computation.operands(fusion)
  ]
  for id_ in fusion.called_computation_ids:
    content = _of_computation(module, module.computations[id_])
    if content is None:
      return None
    parts.append(content)
  return _digest(parts)


def _of_computation(
  module: hlo.Module, computation: hlo.Computation
) -> bytes | None:
  if "scatter" in computation.opcodes:
    return None
  copy = hlo.hlo_pb2.HloComputationProto()
  copy.CopyFrom(computation.proto)
  copy.ClearField("name")
  parts = []
  for instruction in copy.instructions:
    if instruction.HasField("backend_config_payload"):
      parts.append(_config(module, instruction))
    for id_ in instruction.called_computation_ids:
      content = _of_computation(module, module.computations[id_])
      if content is None:
        return None
      parts.append(content)
    instruction.ClearField("name")
    instruction.ClearField("metadata")
  return _digest([copy.SerializeToString(deterministic=True), *parts])


def _config(module: hlo.Module, instruction: hlo.Instruction) -> bytes:
  """Takes an instruction's config out; it may be in the module's table."""
  config = module.raw_backend_config(instruction)
  instruction.ClearField("backend_config_payload")
  return config


def _without_names(instruction: hlo.Instruction) -> bytes:
  instruction.ClearField("name")
  instruction.ClearField("metadata")
  return instruction.SerializeToString(deterministic=True)


def _digest(parts: Iterable[bytes]) -> bytes:
  digest = hashlib.sha256()
  for part in parts:
    digest.update(len(part).to_bytes(8, "little"))
    digest.update(part)
  return digest.digest()
