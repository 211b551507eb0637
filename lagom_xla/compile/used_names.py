# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Names of instructions that XLA has used, so that it counts on from them.

XLA calls a new instruction by its kind and the first number that no other has
had, even one that is gone. A module that was written down lacks those that are
gone: here they come back, as constants that nothing reads and that XLA takes
out at once.
"""

from __future__ import annotations

from collections import Counter
from collections import defaultdict
from collections.abc import Iterator, Mapping
import re

from lagom_xla.passes import hlo_pb2

_Module = hlo_pb2.HloModuleProto
_NUMBERED = re.compile(r"(.*)\.(\d+)")


def first_new(fused: _Module, scheduled: _Module) -> dict[str, int]:
  """The lowest number of each kind of instruction that was not there before."""
  before = set(_names(fused))
  lowest: dict[str, int] = {}
  for name in _names(scheduled):
    if name not in before:
      kind, number = _parts(name)
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
  before = set(_names(fused))
  surplus: dict[str, Counter[int]] = defaultdict(Counter)
  for wanted, found in zip(_in_order(expected), _in_order(got), strict=True):
    (kind, number), (other_kind, other) = _parts(wanted), _parts(found)
    if wanted not in before and kind == other_kind:
      surplus[kind][other - number] += 1
  return {
    kind: max(0, end - surplus[kind].most_common(1)[0][0])
    if surplus[kind]
    else end
    for kind, end in first.items()
  }


def are_alike(expected: _Module, got: _Module) -> bool:
  """Whether two schedules have the same opcodes and shapes in their order."""
  return _outline(expected, has_names=False) == _outline(got, has_names=False)


def are_equal(expected: _Module, got: _Module) -> bool:
  """Whether they have the same names, too, in all that is scheduled."""
  return _outline(expected, has_names=True) == _outline(got, has_names=True)


def _outline(module: _Module, *, has_names: bool) -> list[tuple[object, ...]]:
  scheduled = module.schedule.sequences
  return [
    (
      instruction.opcode,
      str(instruction.shape),
      instruction.name if has_names and computation.id in scheduled else "",
    )
    for computation, instruction in _instructions(module)
  ]


def _instructions(
  module: _Module,
) -> Iterator[tuple[hlo_pb2.HloComputationProto, hlo_pb2.HloInstructionProto]]:
  """All instructions; those of a schedule in its order."""
  for computation in module.computations:
    by_id = {i.id: i for i in computation.instructions}
    sequences = module.schedule.sequences
    if computation.id in sequences:
      ids = list(sequences[computation.id].instruction_ids)
    else:
      ids = list(by_id)
    for instruction_id in ids:
      yield computation, by_id[instruction_id]


def _in_order(module: _Module) -> Iterator[str]:
  for _, instruction in _instructions(module):
    yield instruction.name


def _names(module: _Module) -> Iterator[str]:
  for computation in module.computations:
    for instruction in computation.instructions:
      yield instruction.name


def _parts(name: str) -> tuple[str, int]:
  match = _NUMBERED.fullmatch(name)
  return (match[1], int(match[2])) if match else (name, 0)


def _name(kind: str, number: int) -> str:
  return f"{kind}.{number}" if number else kind
