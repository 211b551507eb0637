# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Device memory that a schedule needs at its peak, estimated.

A buffer is live from the first to the last instruction that touches it. A
computation's parameters and result are live all the time and belong to its
caller. The buffers of a loop's body are live while it runs. At each place of
the schedule the live buffers are summed; the largest sum is the peak.

XLA packs buffers into one allocation and loses a little to gaps, and it lets a
kernel write its result where an operand that is no longer needed stood. So this
is an estimate, for one order of a module against another.
"""

from __future__ import annotations

from collections.abc import Iterable

from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import aliasing


def peak_bytes(module: hlo.Module, buffers: aliasing.Buffers) -> int:
  """The estimated peak of a scheduled module, arguments and results included.

  Args:
    module: scheduled.
    buffers: of a module with the same instructions, in any order.
  """
  held = held_bytes(module, buffers)
  return held + _peak_inside(module, buffers, module.entry)


def held_bytes(module: hlo.Module, buffers: aliasing.Buffers) -> int:
  """Arguments and results, which are live all the time; aliased ones once."""
  return sum(buffers.num_bytes[b] for b in _interface(buffers, module.entry))


def _peak_inside(
  module: hlo.Module, buffers: aliasing.Buffers, computation: hlo.Computation
) -> int:
  """The peak of a computation, without its parameters and its result."""
  interface = _interface(buffers, computation)
  first: dict[int, int] = {}
  last: dict[int, int] = {}
  nested: dict[int, int] = {}
  for position, instruction in enumerate(computation.instructions):
    for buffer in buffers.access(computation, instruction).all - interface:
      first.setdefault(buffer, position)
      last[buffer] = position
    nested[position] = max(
      (
        _peak_inside(module, buffers, callee)
        for callee, _ in module.callees(instruction)
        if instruction.opcode != "async-start"
      ),
      default=0,
    )
  begins: dict[int, int] = {}
  ends: dict[int, int] = {}
  for buffer, position in first.items():
    size = buffers.num_bytes[buffer]
    begins[position] = begins.get(position, 0) + size
    ends[last[buffer]] = ends.get(last[buffer], 0) + size
  peak = live = 0
  for position in range(len(computation.instructions)):
    live += begins.get(position, 0)
    peak = max(peak, live + nested[position])
    live -= ends.get(position, 0)
  return peak


def _interface(
  buffers: aliasing.Buffers, computation: hlo.Computation
) -> frozenset[int]:
  """The buffers of a computation's parameters and of its result."""
  ends: Iterable[hlo.Instruction] = (
    *(i for i in computation.instructions if i.opcode == "parameter"),
    computation.root,
  )
  return frozenset(buffer for i in ends for buffer in buffers.of(i))
