# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sharing: which arrays of a module XLA may put into one buffer.

What a tuple holds is what was put in, a loop carries its state in place, a
dynamic-update-slice writes into its operand, and a donated input becomes an
output. Arrays are put together whenever XLA might do so; two that end up
together may still have buffers of their own. A collective, a fusion or a
library call counts as writing in place wherever it could. The rules are those
of XLA's HloDataflowAnalysis (what is passed on) and AliasInfo (what is updated
in place), taken widely.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lagom_xla.passes import collectives
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import leaves as leaves_lib

# May write into an operand of the size of their result.
_IN_PLACE = frozenset(
  ["dynamic-update-slice", "scatter", "set-dimension-size", "sort"]
)


class Sharing:
  """The leaves of a module, put together.

  Args:
    module: scheduled.
    leaves: its arrays.
    is_assigned: whether a collective may have been given its operand's buffer
      to write to. XLA:CPU gives out buffers after its passes, by their order.
  """

  def __init__(
    self,
    module: hlo.Module,
    leaves: leaves_lib.Leaves,
    *,
    is_assigned: bool = True,
  ):
    self._module = module
    self._leaves = leaves
    self._is_assigned = is_assigned
    self._together: dependencies.DisjointSets[int] = dependencies.DisjointSets()
    for id_, computation in module.computations.items():
      if id_ in module.executions:  # Inside a kernel nothing is shared.
        for instruction in computation.instructions:
          self._join_instruction(computation, instruction)
    self._join_donated()

  def buffer_of(self, leaf: int) -> int:
    """The number that leaves share which are put together."""
    return self._together.find(leaf)

  def _join_instruction(
    self, computation: hlo.Computation, instruction: hlo.Instruction
  ) -> None:
    leaves = self._leaves.of(instruction)
    operands = self._leaves.of_operands(computation, instruction)
    match instruction.opcode:
      case "get-tuple-element":
        (operand,) = computation.operands(instruction)
        self._join(leaves, self._leaves.at(operand, [instruction.tuple_index]))
      case "tuple" | "bitcast" | "opt-barrier" | "domain" | "async-update":
        self._join(leaves, operands)
      case "add-dependency":
        self._join(leaves, operands[:1])
      case "while" | "call" | "conditional" | "async-start":
        self._join_callees(computation, instruction)
      case opcode if opcode.endswith("-done"):
        (start,) = computation.operands(instruction)[:1]
        self._join(leaves, self._leaves.of_results(start))
    self._join_repeated(instruction, operands)
    if self._may_write_operands(instruction):
      self._join_equal_sizes(operands, self._leaves.of_results(instruction))

  def _join_repeated(
    self, instruction: hlo.Instruction, operands: Sequence[int]
  ) -> None:
    """Starts repeat their operands before or after their results."""
    leaves = self._leaves.of(instruction)
    if instruction.opcode == "copy-start":
      self._join(leaves[1:2], operands)
    elif instruction.opcode.endswith("-start") or instruction.opcode == "send":
      begin, _ = leaves_lib.result_span(instruction)
      self._join(leaves[:begin], operands)

  def _join_callees(
    self, computation: hlo.Computation, instruction: hlo.Instruction
  ) -> None:
    operands = [self._leaves.of(o) for o in computation.operands(instruction)]
    if instruction.opcode == "while":
      self._join(self._leaves.of(instruction), operands[0])
    results = self._leaves.of_results(instruction)
    for number, callee_id in enumerate(instruction.called_computation_ids):
      callee = self._module.computations[callee_id]
      arguments = operands
      if instruction.opcode == "conditional":
        arguments = [operands[1 + number]]
      for parameter in callee.instructions:
        if parameter.opcode == "parameter":
          self._join(
            self._leaves.of(parameter), arguments[parameter.parameter_number]
          )
      is_condition = instruction.opcode == "while" and number == 1
      if not is_condition:
        self._join(self._leaves.of(callee.root), results)

  def _join_donated(self) -> None:
    entry = self._module.entry
    parameters = {
      i.parameter_number: i
      for i in entry.instructions
      if i.opcode == "parameter"
    }
    for alias in self._module.proto.input_output_alias.entries:
      parameter = parameters[alias.parameter_number]
      self._join(
        self._leaves.at(entry.root, alias.output_shape_index),
        self._leaves.at(parameter, alias.parameter_shape_index),
      )

  def _may_write_operands(self, instruction: hlo.Instruction) -> bool:
    return bool(
      instruction.opcode in _IN_PLACE
      or instruction.output_operand_aliasing
      # Not one in a fusion, which is a kernel of XLA's own: of a fusion's
      # operands, only one that leads to the result elementwise or as what is
      # updated may give its buffer (GpuAliasInfo in
      # xla/service/gpu/alias_info.cc). What an async-start runs, and what is
      # called, is looked at on its own.
      or (self._is_assigned and collectives.kind_of(instruction))
      or self._updates_inside(instruction)
    )

  def _updates_inside(self, instruction: hlo.Instruction) -> bool:
    if instruction.opcode not in ("fusion", "async-start"):
      return False
    return any(
      inner.opcode in _IN_PLACE
      or inner.output_operand_aliasing
      or self._updates_inside(inner)
      for callee in instruction.called_computation_ids
      for inner in self._module.computations[callee].instructions
    )

  def _join_equal_sizes(
    self, operands: Iterable[int], results: Sequence[int]
  ) -> None:
    sizes_bytes = self._leaves.sizes_bytes
    for operand in operands:
      for result in results:
        if sizes_bytes[operand] == sizes_bytes[result]:
          self._join([operand], [result])

  def _join(self, leaves: Iterable[int], others: Iterable[int]) -> None:
    """Puts leaves together, one by one; the longer list's rest is left."""
    for leaf, other in zip(leaves, others, strict=False):
      self._together.join(leaf, other)
