# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Scatters: how many updates they make, and which may meet in one place.

XLA runs a scatter with a thread for each element of its updates. Where an index
may occur twice each thread updates memory atomically. `unique_indices` on JAX's
`.at[].add` promises that none does.
"""

from __future__ import annotations

import dataclasses
import math

from lagom_xla.passes import hlo


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Scatter:
  """The scatter that a kernel runs.

  Attributes:
    num_updates: indices, each of which places one window of elements.
    window_elements: elements of one update.
    num_places: windows that an index can name, such as a vocabulary's rows.
    element_bits: size of an element.
    may_collide: whether two updates may combine with one element. A scatter
      that overwrites needs no atomic update; and an index of several
      coordinates, as a router's (token, expert), is taken to be unique even
      where the program does not promise it.
  """

  num_updates: int
  window_elements: int
  num_places: int
  element_bits: int
  may_collide: bool


def of_computation(
  module: hlo.Module, computation: hlo.Computation
) -> Scatter | None:
  """The scatter in a computation, or None."""
  for instruction in computation.instructions:
    if instruction.opcode == "scatter":
      return of_scatter(module, computation, instruction)
  return None


def of_scatter(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
) -> Scatter:
  """What a scatter instruction does."""
  operands = computation.operands(instruction)
  # N operands, the indices, N updates.
  operand, updates = operands[0].shape, operands[len(operands) // 2 + 1].shape
  numbers = instruction.scatter_dimension_numbers
  window_elements = math.prod(
    updates.dimensions[d] for d in numbers.update_window_dims
  )
  combiner = module.computations[instruction.called_computation_ids[0]]
  indexed = numbers.scatter_dims_to_operand_dims
  return Scatter(
    num_updates=math.prod(updates.dimensions) // max(window_elements, 1),
    window_elements=window_elements,
    num_places=math.prod(operand.dimensions[d] for d in indexed),
    element_bits=(
      8 * hlo.shape_bytes(operand) // max(hlo.num_elements(operand), 1)
    ),
    may_collide=(
      len(indexed) == 1
      and not instruction.unique_indices
      and combiner.root.opcode != "parameter"
    ),
  )
