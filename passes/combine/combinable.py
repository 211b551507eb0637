# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Collectives that could be combined, and the groups that a module can have.

They are read from a module before XLA's combiners (PRE_SCHEDULER), where each
has a *label*: the name of its instruction, which is the same in every compile
of a module by one version of JAX. An instruction there that has several arrays
already counts as that many, as `split` writes it: NAME.0, NAME.1 and so on.

Members of a group agree in their traits (`rule`), and none depends on another;
nor may two groups wait for each other, as {a, d} and {b, c} would where b needs
a and d needs c.

An all-reduce of an all-reduce, over rows and then over columns of devices, is
no candidate: XLA folds the two into one over all devices before its combiners
run, and nothing on that one says which two it was.
"""

from __future__ import annotations

import collections
from collections.abc import Hashable, Iterator, Mapping
import dataclasses

from lagom_xla import errors
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes.combine import reduce_scatter
from lagom_xla.passes.combine import split
from lagom_xla.passes.combine import table

# Labels that are combined; what no group names stays alone.
Groups = tuple[tuple[str, ...], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
  """A collective that could be combined with others.

  Attributes:
    label: its name.
    kind: a key of table.COMBINERS; "reduce-scatter" also for an
      all-reduce of which each device keeps a shard only, which XLA makes one.
    computation_id: where it stands.
    instruction: the collective itself.
    num_bytes: as XLA's combiners count them.
    traits: what all members of a group must agree in.
    after: the candidates that it depends on, as bits.
    bit: its own.
  """

  label: str
  kind: str
  computation_id: int
  instruction: hlo.Instruction
  num_bytes: int
  traits: table.Traits
  after: int
  bit: int


def find(
  module: hlo.Module, *, as_written: bool = False
) -> dict[str, Candidate]:
  """The candidates of a module, by label.

  Args:
    module: before XLA's combiners.
    as_written: whether they are to be combined without XLA's help, which makes
      reduce-scatters of all-reduces and turns arrays so that all are gathered
      or scattered along one dimension.
  """
  module = split.apart(module)
  found: dict[str, Candidate] = {}
  for computation_id in module.executions:
    computation = module.computations[computation_id]
    if computation.opcodes.isdisjoint(table.COMBINERS):
      continue
    for candidate in _in_computation(module, computation, as_written):
      found[candidate.label] = candidate
  return found


def _in_computation(
  module: hlo.Module, computation: hlo.Computation, as_written: bool
) -> Iterator[Candidate]:
  scattered = {} if as_written else reduce_scatter.find(computation)
  folded = set() if as_written else _folded(module, computation)
  after: dict[int, int] = {}  # Instruction -> the candidates it depends on.
  bit = 1
  for instruction in computation.instructions:
    mask = 0
    for before in instruction.operand_ids:
      mask |= after[before]
    for before in instruction.control_predecessor_ids:
      mask |= after[before]
    after[instruction.id] = mask
    if (
      instruction.opcode not in table.COMBINERS
      or split.is_in_place(instruction)
      or instruction.id in folded
    ):
      continue
    pair = scattered.get(instruction.id)
    kind = "reduce-scatter" if pair else instruction.opcode
    result = pair.slice if pair else instruction
    yield Candidate(
      label=instruction.name,
      kind=kind,
      computation_id=computation.id,
      instruction=instruction,
      num_bytes=hlo.shape_bytes(result.shape),
      traits=table.traits_of_instruction(
        module, computation, instruction, kind=kind, as_written=as_written
      ),
      after=mask,
      bit=bit,
    )
    after[instruction.id] |= bit
    bit <<= 1


def _folded(module: hlo.Module, computation: hlo.Computation) -> set[int]:
  """The all-reduces that XLA's all-reduce folder makes one of."""
  num_users = collections.Counter(
    operand for i in computation.instructions for operand in i.operand_ids
  )
  folded = set()
  for second in computation.instructions:
    if second.opcode != "all-reduce":
      continue
    first = computation.by_id[second.operand_ids[0]]
    if (
      first.opcode == "all-reduce"
      and num_users[first.id] == 1
      and table.reduction(module, first) == table.reduction(module, second)
      and _reach_each_once(first, second)
    ):
      folded |= {first.id, second.id}
  return folded


def _reach_each_once(first: hlo.Instruction, second: hlo.Instruction) -> bool:
  """Whether two reductions take each device's array once."""
  inner = {
    device: group
    for group in collectives.replica_groups_of(first, None)
    for device in group
  }
  for group in collectives.replica_groups_of(second, None):
    reached = [d for device in group for d in inner.get(device, (device,))]
    if len(set(reached)) != len(reached):
      return False
  return True


def check(candidates: Mapping[str, Candidate], groups: Groups) -> None:
  """Checks that a module can have these groups.

  Args:
    candidates: of the module, from `find`.
    groups: labels to combine.

  Raises:
    CombineError: it cannot; the message says which labels and why.
  """
  group_of: dict[str, int] = {}
  for number, group in enumerate(groups):
    for label in group:
      if label not in candidates:
        raise errors.CombineError(
          f"{label} is no collective that can be combined: there are"
          f" {_few(list(candidates))}. Labels are those of one version of JAX"
          " and one module."
        )
      if label in group_of:
        raise errors.CombineError(
          f"{label} is named twice in the combine groups: a collective belongs"
          " to one group."
        )
      group_of[label] = number
    _check_group([candidates[label] for label in group])
  _check_order(candidates, groups)


def _check_group(members: list[Candidate]) -> None:
  for member in members[1:]:
    first = members[0]
    if differing := table.difference(first.traits, member.traits):
      trait, ours, theirs = differing
      raise errors.CombineError(
        f"{first.label} and {member.label} cannot be combined: they differ"
        f" in {trait} ({_short(ours)} and {_short(theirs)})."
      )
  together = sum(member.bit for member in members)
  for member in members:
    if member.after & together:
      earlier = next(m for m in members if m.bit & member.after)
      raise errors.CombineError(
        f"{earlier.label} and {member.label} cannot be combined:"
        f" {member.label} depends on {earlier.label}."
      )


def _check_order(candidates: Mapping[str, Candidate], groups: Groups) -> None:
  """Combined collectives must not wait for each other in a cycle."""
  members = [[candidates[label] for label in group] for group in groups]
  by_computation: dict[int, list[int]] = {}
  for number, group in enumerate(members):
    if len(group) > 1:
      by_computation.setdefault(group[0].computation_id, []).append(number)
  for numbers in by_computation.values():
    bits = {n: sum(m.bit for m in members[n]) for n in numbers}
    after = dict.fromkeys(numbers, 0)
    for number in numbers:
      for member in members[number]:
        after[number] |= member.after
    # Groups whose predecessors are all placed are placed, until none is left.
    remaining, placed = set(numbers), True
    while remaining and placed:
      waiting = 0
      for number in remaining:
        waiting |= bits[number]
      placed = {n for n in remaining if not after[n] & waiting & ~bits[n]}
      remaining -= placed
    if remaining:
      cycle = [f"{{{_few(list(groups[n]))}}}" for n in sorted(remaining)]
      raise errors.CombineError(
        f"The combine groups {_few(cycle)} cannot be there together: they"
        " would wait for each other."
      )


def _few(words: list[str]) -> str:
  if len(words) > 6:
    words = [*words[:6], f"{len(words) - 6} more"]
  *others, last = words
  return f"{', '.join(others)} and {last}" if others else last


def _short(value: Hashable) -> str:
  text = str(value)
  return text if len(text) <= 60 else f"{text[:57]}..."
