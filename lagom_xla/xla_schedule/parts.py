# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The parts of combined collectives: each array that could be alone."""

from __future__ import annotations

import dataclasses

from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import combine
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes.combine import table


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Part:
  """One array of a collective.

  Attributes:
    collective: that it is a part of so far.
    index: which of its arrays.
    operand_id: the instruction whose value it sends.
    traits: what it must have in common with what it is combined with.
    shape: of what arrives.
  """

  collective: collectives_lib.Collective
  index: int
  operand_id: int
  traits: table.Traits
  shape: hlo.Shape

  @property
  def kind(self) -> str:
    """HLO opcode of the collective."""
    return self.collective.kind

  @property
  def num_bytes(self) -> int:
    """Bytes that arrive, which is what XLA's combiners count."""
    return hlo.shape_bytes(self.shape)


def of_collective(
  module: hlo.Module,
  graph: dependencies.Graph,
  collective: collectives_lib.Collective,
) -> tuple[Part, ...]:
  """The parts of a collective; () where it cannot be divided.

  That is where another computation waits for it, or where its arrays are used
  as a whole.
  """
  by_id = graph.computation.by_id
  if collective.done_id is None:
    return ()
  done = by_id[collective.done_id].shape
  arrays = list(done.tuple_shapes) or [done]
  users = [by_id[id_] for id_ in graph.users[collective.done_id]]
  is_taken_apart = all(u.opcode == "get-tuple-element" for u in users)
  if len(arrays) > 1 and not is_taken_apart:
    return ()
  start = by_id[collective.start_id]
  operation = start
  for _, inside in collectives_lib.payloads(module, start):
    operation = inside
  reduction = table.reduction(module, operation)
  return tuple(
    Part(
      collective=collective,
      index=index,
      operand_id=start.operand_ids[index],
      traits=table.traits_of_collective(
        collective,
        element_type=hlo.element_type(shape),
        reduction=reduction,
        key=combine.program_key(operation) or combine.program_key(start),
      ),
      shape=shape,
    )
    for index, shape in enumerate(arrays)
  )
