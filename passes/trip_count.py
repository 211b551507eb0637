# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Iterations that a `while` runs.

XLA writes what it proved into the loop's backend_config (known_trip_count), and
updates it when it double-buffers, pipelines or peels the loop. Modules from
before that analysis carry only the loop itself; there, the plain counting loop
that `lax.scan` and `lax.fori_loop` lower to is recognised.
"""

from __future__ import annotations

from collections.abc import Mapping
import math
from typing import Any

from lagom_xla.passes import hlo_pb2


def of_loop(
  loop: hlo_pb2.HloInstructionProto,
  siblings: Mapping[int, hlo_pb2.HloInstructionProto],
  *,
  body: hlo_pb2.HloComputationProto,
  condition: hlo_pb2.HloComputationProto,
  backend_config: Mapping[str, Any],
) -> int | None:
  """The trip count of `loop`, or None where it is not known.

  Args:
    loop: a `while` instruction.
    siblings: the instructions of the loop's computation, by id.
    body: the computation that is repeated.
    condition: the computation that decides whether to go on.
    backend_config: the loop's backend_config.
  """
  known = backend_config.get("known_trip_count", {}).get("n")
  if known is not None:
    return int(known)
  return _counting_loop(loop, siblings, body, condition)


def _counting_loop(
  loop: hlo_pb2.HloInstructionProto,
  siblings: Mapping[int, hlo_pb2.HloInstructionProto],
  body: hlo_pb2.HloComputationProto,
  condition: hlo_pb2.HloComputationProto,
) -> int | None:
  """Recognises `for (i = init; i < bound; i += step)` over constants."""
  inside = {i.id: i for i in condition.instructions}
  compare = inside[condition.root_id]
  if compare.opcode != "compare" or compare.comparison_direction != "LT":
    return None
  counter, limit = (inside[i] for i in compare.operand_ids)
  carried = siblings[loop.operand_ids[0]]
  if counter.opcode != "get-tuple-element" or carried.opcode != "tuple":
    return None
  init = _scalar(siblings[carried.operand_ids[counter.tuple_index]])
  bound = _scalar(limit)
  step = _step(body, counter.tuple_index)
  if init is None or bound is None or step is None or step <= 0:
    return None
  return max(math.ceil((bound - init) / step), 0)


def _step(body: hlo_pb2.HloComputationProto, counter_index: int) -> int | None:
  """The constant that a loop adds to its counter."""
  inside = {i.id: i for i in body.instructions}
  root = inside[body.root_id]
  if root.opcode != "tuple":
    return None
  added = inside[root.operand_ids[counter_index]]
  if added.opcode != "add":
    return None
  operands = [inside[i] for i in added.operand_ids]
  is_counter = [
    o.opcode == "get-tuple-element" and o.tuple_index == counter_index
    for o in operands
  ]
  steps = [_scalar(o) for o in operands]
  if is_counter[0]:
    return steps[1]
  return steps[0] if is_counter[1] else None


def _scalar(instruction: hlo_pb2.HloInstructionProto) -> int | None:
  """The value of an integer constant."""
  if instruction.opcode != "constant":
    return None
  literal = instruction.literal
  for values in (literal.s32s, literal.s64s, literal.u32s, literal.u64s):
    if len(values) == 1:
      return int(values[0])
  return None
