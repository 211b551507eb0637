# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Names of instructions that XLA has used, so that it counts on from them.

XLA calls a new instruction by its kind and the first number that no other has
had, even one that is gone. A module that was written down lacks those that are
gone: here they come back, as constants that nothing reads and that XLA takes
out at once.

Names count in what runs by itself: the program, the bodies of its loops and
what they call. Names inside kernels and reductions decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import re

from lagom_xla.passes import hlo_pb2

_Module = hlo_pb2.HloModuleProto
_NUMBERED = re.compile(r"(.*)\.(\d+)")
# Instructions whose computations are scheduled, and run one by one.
_CALLING = frozenset(["async-start", "call", "conditional", "while"])


def first_new(fused: _Module, scheduled: _Module) -> dict[str, int]:
  """The lowest number of each kind of instruction that was not there before."""
  lowest: dict[str, int] = {}
  for kind, number in _new(fused, scheduled):
    lowest[kind] = min(number, lowest.get(kind, number))
  return lowest


def with_used(fused: _Module, first: Mapping[str, int]) -> _Module:
  """A module in which XLA has used all names of a kind up to the first new."""
  used = {_name(kind, n) for kind, end in first.items() for n in range(end)}
  missing = sorted(used - set(_names(fused)))
  module = _Module()
  module.CopyFrom(fused)
  entry = next(
    c for c in module.computations if c.id == module.entry_computation_id
  )
  scalar = next(
    i
    for computation in fused.computations
    for i in computation.instructions
    if i.opcode == "constant" and not i.shape.dimensions
  )
  first_id = 1 + max(instruction.id for instruction in entry.instructions)
  for offset, name in enumerate(missing):
    constant = entry.instructions.add()
    constant.CopyFrom(scalar)
    constant.name, constant.id = name, first_id + offset
  return module


def shifted(
  first: Mapping[str, int], fused: _Module, expected: _Module, got: _Module
) -> dict[str, int]:
  """First new names, less what `got` counted too far in each kind."""
  wanted, found = first_new(fused, expected), first_new(fused, got)
  return {
    kind: max(0, number - found.get(kind, wanted[kind]) + wanted[kind])
    for kind, number in first.items()
  }


def are_alike(expected: _Module, got: _Module) -> bool:
  """Whether two schedules are the same in order, but for their names."""
  return _outline(expected) == _outline(got)


def are_equal(expected: _Module, got: _Module) -> bool:
  """Whether what runs has the same names, too."""
  return are_alike(expected, got) and list(_that_run(expected)) == list(
    _that_run(got)
  )


def _outline(module: _Module) -> list[tuple[str, str, bytes]]:
  return [
    (i.opcode, str(i.shape), i.backend_config) for i in _instructions(module)
  ]


def _new(fused: _Module, scheduled: _Module) -> Iterator[tuple[str, int]]:
  """What was not there before, in parts; copies count by themselves."""
  before = set(_names(fused))
  for name in _that_run(scheduled):
    kind, number = _parts(name)
    if name not in before and "." not in kind:
      yield kind, number


def in_order(
  module: _Module, computation: hlo_pb2.HloComputationProto
) -> list[hlo_pb2.HloInstructionProto]:
  """A computation's instructions, as scheduled where they are."""
  sequences = module.schedule.sequences
  if computation.id not in sequences:
    return list(computation.instructions)
  by_id = {i.id: i for i in computation.instructions}
  return [by_id[i] for i in sequences[computation.id].instruction_ids]


def _instructions(module: _Module) -> Iterator[hlo_pb2.HloInstructionProto]:
  """All instructions; those of a schedule in its order."""
  for computation in module.computations:
    yield from in_order(module, computation)


def _that_run(module: _Module) -> Iterator[str]:
  """The names of what runs by itself, in the order in which it runs."""
  ids = running(module)
  for computation in module.computations:
    if computation.id in ids:
      yield from (i.name for i in in_order(module, computation))


def running(module: _Module) -> set[int]:
  """The computations that are no part of a kernel or a reduction."""
  by_id = {computation.id: computation for computation in module.computations}
  found: set[int] = set()
  waiting = [module.entry_computation_id]
  while waiting:
    computation_id = waiting.pop()
    if computation_id in found:
      continue
    found.add(computation_id)
    for instruction in by_id[computation_id].instructions:
      if instruction.opcode in _CALLING:
        waiting += instruction.called_computation_ids
  return found


def _names(module: _Module) -> Iterator[str]:
  for computation in module.computations:
    for instruction in computation.instructions:
      yield instruction.name


def _parts(name: str) -> tuple[str, int]:
  match = _NUMBERED.fullmatch(name)
  return (match[1], int(match[2])) if match else (name, 0)


def _name(kind: str, number: int) -> str:
  return f"{kind}.{number}" if number else kind
