# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""How many iterations a `while` runs.

XLA writes what it proved into the loop's backend_config (known_trip_count), and
updates it when it double-buffers, pipelines or peels the loop. Modules from
before that analysis carry only the loop itself; there, the plain counting loop
`for i in range(init, bound)` that `lax.scan` lowers to is recognised.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lagom_xla.passes import hlo_pb2


def of_loop(
  loop: hlo_pb2.HloInstructionProto,
  siblings: Mapping[int, hlo_pb2.HloInstructionProto],
  condition: hlo_pb2.HloComputationProto,
  backend_config: Mapping[str, Any],
) -> int | None:
  """The trip count of `loop`, or None where it cannot be told.

  Args:
    loop: a `while` instruction.
    siblings: the instructions of the loop's computation, by id.
    condition: the computation that decides whether to go on.
    backend_config: the loop's backend_config.
  """
  known = backend_config.get("known_trip_count", {}).get("n")
  if known is not None:
    return int(known)
  return _counting_loop(loop, siblings, condition)


def _counting_loop(
  loop: hlo_pb2.HloInstructionProto,
  siblings: Mapping[int, hlo_pb2.HloInstructionProto],
  condition: hlo_pb2.HloComputationProto,
) -> int | None:
  """Recognises `init <= i < bound` with step one."""
  inside = {i.id: i for i in condition.instructions}
  compare = inside[condition.root_id]
  if compare.opcode != "compare" or compare.comparison_direction != "LT":
    return None
  counter, bound = (inside[i] for i in compare.operand_ids)
  if counter.opcode != "get-tuple-element":
    return None
  carried = siblings[loop.operand_ids[0]]
  if carried.opcode != "tuple":
    return None
  init = _scalar(siblings[carried.operand_ids[counter.tuple_index]])
  limit = _scalar(bound)
  if init is None or limit is None:
    return None
  return max(limit - init, 0)


def _scalar(instruction: hlo_pb2.HloInstructionProto) -> int | None:
  """The value of an integer constant."""
  if instruction.opcode != "constant":
    return None
  literal = instruction.literal
  for values in (literal.s32s, literal.s64s, literal.u32s, literal.u64s):
    if len(values) == 1:
      return int(values[0])
  return None
