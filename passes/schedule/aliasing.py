# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Buffers: which values may share one, and who reads and writes it.

XLA gives each array a buffer, but some arrays the same one (`sharing.py`). It
checked that the old contents are no longer needed when the new ones are
written, for the order in which it scheduled the instructions. Another order has
to be checked again, and this module says what to look at:

    buffers = aliasing.of(module)
    access = buffers.access(computation, instruction)
    access.reads, access.writes         # buffers, as numbers
"""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses
import functools

from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import leaves as leaves_lib
from lagom_xla.passes.schedule import sharing as sharing_lib

# Pass on their operands, touch no memory and take no time.
FORWARDING = collectives.NOPS - {"partition-id", "replica-id"}

_CALLING = frozenset(["call", "conditional", "while"])


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Access:
  """The buffers that an instruction reads and writes."""

  reads: frozenset[int] = frozenset()
  writes: frozenset[int] = frozenset()

  @property
  def all(self) -> frozenset[int]:
    """The buffers that it touches."""
    return self.reads | self.writes


_NONE = Access()


class Buffers:
  """The buffers of a module; see the module's docstring.

  Args:
    module: scheduled.
    is_assigned: see `sharing.Sharing`.
  """

  def __init__(self, module: hlo.Module, *, is_assigned: bool = True):
    self._module = module
    self._leaves = leaves_lib.Leaves(module)
    self._sharing = sharing_lib.Sharing(
      module, self._leaves, is_assigned=is_assigned
    )
    self._inside: dict[int, Access] = {}
    self._accesses: dict[int, Access] = {}

  def of(self, instruction: hlo.Instruction) -> tuple[int, ...]:
    """The buffers of an instruction's arrays, in the order of its shape."""
    return tuple(map(self._sharing.buffer_of, self._leaves.of(instruction)))

  def sizes_bytes(self, instruction: hlo.Instruction) -> tuple[int, ...]:
    """The sizes of an instruction's arrays, in the order of its shape."""
    sizes_bytes = self._leaves.sizes_bytes
    return tuple(sizes_bytes[leaf] for leaf in self._leaves.of(instruction))

  @functools.cached_property
  def num_bytes(self) -> dict[int, int]:
    """The size of each buffer: that of the largest array in it."""
    sizes: dict[int, int] = {}
    for leaf, size in enumerate(self._leaves.sizes_bytes):
      buffer = self._sharing.buffer_of(leaf)
      sizes[buffer] = max(sizes.get(buffer, 0), size)
    return sizes

  def access(
    self, computation: hlo.Computation, instruction: hlo.Instruction
  ) -> Access:
    """What an instruction reads and writes.

    A collective in flight reads its operands and writes its results until its
    done is over, so the done counts as doing both again.
    """
    if instruction.id not in self._accesses:
      self._accesses[instruction.id] = self._access(computation, instruction)
    return self._accesses[instruction.id]

  def _access(
    self, computation: hlo.Computation, instruction: hlo.Instruction
  ) -> Access:
    if instruction.opcode in FORWARDING:
      return _NONE
    start = _started(computation, instruction)
    operands = self._buffers(self._leaves.of_operands(computation, start))
    if instruction.opcode in _CALLING:
      inside = self._access_inside(instruction)
      visible = operands | frozenset(self.of(instruction))
      return Access(
        reads=inside.reads & visible, writes=inside.writes & visible
      )
    results = self._buffers(self._leaves.of_results(start))
    return Access(reads=operands, writes=results)

  def _access_inside(self, instruction: hlo.Instruction) -> Access:
    """What the computations that an instruction runs read and write."""
    reads: set[int] = set()
    writes: set[int] = set()
    for callee_id in instruction.called_computation_ids:
      if callee_id not in self._inside:
        callee = self._module.computations[callee_id]
        accesses = [self.access(callee, i) for i in callee.instructions]
        self._inside[callee_id] = Access(
          reads=frozenset().union(*(a.reads for a in accesses)),
          writes=frozenset().union(*(a.writes for a in accesses)),
        )
      reads |= self._inside[callee_id].reads
      writes |= self._inside[callee_id].writes
    return Access(reads=frozenset(reads), writes=frozenset(writes))

  def _buffers(self, leaves: Iterable[int]) -> frozenset[int]:
    # Tokens take no memory and are ordered by data dependence alone.
    sizes_bytes = self._leaves.sizes_bytes
    return frozenset(
      self._sharing.buffer_of(leaf) for leaf in leaves if sizes_bytes[leaf]
    )


@functools.lru_cache(maxsize=1)  # One module is looked at again and again.
def of(module: hlo.Module) -> Buffers:
  """The buffers of a module."""
  return Buffers(module)


def _started(
  computation: hlo.Computation, instruction: hlo.Instruction
) -> hlo.Instruction:
  """What a done or update waits for; any other instruction itself."""
  while instruction.opcode.endswith(("-done", "-update")):
    instruction = computation.by_id[instruction.operand_ids[0]]
  return instruction
