# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Collective: the record of one, and what it sends and receives.

`collectives.py` finds them in a module, and says Collective of the record.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
from typing import Literal

from lagom_xla.passes import hlo
from lagom_xla.passes import replica_groups

Form = Literal["async", "sync"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
  """One collective of a module.

  Attributes:
    name: name of the instruction that starts it.
    kind: HLO opcode of the operation, one of `collectives.KINDS`.
    form: "async" where XLA may run it beside kernels; "sync" where it is a
      plain instruction, is marked is_sync, or has nothing but no-ops between
      its start and its done.
    computation: name of the computation that it stands in.
    start_id: id of the instruction that starts it.
    done_id: id of the instruction that waits for it; None for plain ones, and
      where the wait is in another computation.
    num_operands: arrays that it moves.
    operand_bytes: bytes of all operands, per device.
    result_bytes: bytes of all results, per device.
    array_bytes: bytes of each array as NCCL counts them (see `nccl_bytes`).
    element_type: HLO element type of the first operand.
    groups: device ids of each group; () where they cannot be known.
    pairs: (source, target) devices of a collective-permute, send or recv, else
      ().
    executions: times it runs per step.
    is_pipelined: whether XLA pipelined it over loop iterations.
  """

  name: str
  kind: str
  form: Form
  computation: str
  start_id: int
  done_id: int | None
  num_operands: int
  operand_bytes: int
  result_bytes: int
  array_bytes: tuple[int, ...]
  element_type: str
  groups: replica_groups.Groups
  pairs: tuple[tuple[int, int], ...]
  executions: int
  is_pipelined: bool

  @property
  def group_size(self) -> int:
    """Devices in its largest group; 0 where groups are unknown."""
    return max(map(len, self.groups), default=0)

  @property
  def num_groups(self) -> int:
    """Groups that run it at the same time; 0 where they are unknown."""
    return len(self.groups)

  @property
  def nccl_bytes(self) -> int:
    """Bytes as NCCL counts them: the larger of what goes in and comes out.

    For all-gather and reduce-scatter that is the whole buffer, ranks times the
    per-rank count (ncclInfo.nBytes, NCCL src/enqueue.cc). A ragged-all-to-all
    sends the rows that its sizes say, which only the running step knows; the
    buffer that they arrive in or come from may be large enough for all ranks to
    send to one. With all rows in use and ranks alike, a rank sends and receives
    the smaller of its two buffers.
    """
    return _moved_bytes(self.kind, self.operand_bytes, self.result_bytes)


def data_operands(
  computation: hlo.Computation, operation: hlo.Instruction, kind: str
) -> list[hlo.Instruction]:
  """The operands that are sent, without offsets, sizes and tokens."""
  operands = computation.operands(operation)
  if kind in ("ragged-all-to-all", "send"):
    return operands[:1]
  if kind == "recv":
    return []
  if kind == "collective-permute" and operation.dynamic_slice_sizes:
    return operands[:1]  # In place: the others are the output and offsets.
  return operands


def result_shape(operation: hlo.Instruction) -> hlo.Shape:
  """The shape of what arrives, without the operands that starts repeat."""
  shape = operation.shape
  match operation.opcode:
    case "all-gather-start" | "collective-permute-start":
      return shape.tuple_shapes[1]
    case "send" | "recv":
      return shape.tuple_shapes[0]
  return shape


def array_bytes(
  kind: str, operands: Sequence[hlo.Shape], result: hlo.Shape
) -> tuple[int, ...]:
  """Bytes of each array as NCCL counts them."""
  given = [hlo.shape_bytes(shape) for shape in operands]
  taken = [hlo.shape_bytes(s) for s in result.tuple_shapes or [result]]
  if len(given) != len(taken):  # A recv, or an in-place permute of a tuple.
    given, taken = [sum(given)], [sum(taken)]
  return tuple(
    _moved_bytes(kind, *pair) for pair in zip(given, taken, strict=True)
  )


def _moved_bytes(kind: str, given_bytes: int, taken_bytes: int) -> int:
  """What a rank sends and receives of a buffer that it gives and one it takes.

  XLA's thunk posts a send and a receive of `send_sizes` and `recv_sizes` rows
  to each rank (xla/backends/gpu/runtime/ragged_all_to_all_thunk.cc).
  """
  if kind == "ragged-all-to-all":
    return min(given_bytes, taken_bytes)
  return max(given_bytes, taken_bytes)
