# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's combiners on a scheduled module, by threshold or by given groups.

A combined collective moves several arrays; each of them is a part that could
be alone. Which parts XLA combines, and up to which threshold, is the rule of
`passes/combine/table.py`; here it is applied to the parts of a schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes.combine import table
from lagom_xla.xla_schedule import editing
from lagom_xla.xla_schedule import merging
from lagom_xla.xla_schedule import parts as parts_lib

# Kinds whose pairs are taken apart and combined here: of those that XLA has
# combiners for, all that go among groups of devices.
KINDS = tuple(k for k in table.COMBINERS if k != "collective-permute")


def combine(
  module: hlo.Module,
  *,
  thresholds_bytes: Mapping[str, int],
  groups: Sequence[Sequence[str]],
) -> hlo.Module:
  """Combines a module's collectives anew.

  Args:
    module: scheduled.
    thresholds_bytes: by kind, as XLA counts (`table.combined_bytes`); kinds
      that are missing stay as they are.
    groups: names of the instructions that start what is to be combined; they
      come before thresholds.

  Raises:
    ValueError: a kind's combining cannot be predicted, or a group cannot be
      combined.
  """
  for kind in thresholds_bytes:
    if kind not in KINDS:
      raise ValueError(
        f"There is no combine threshold for {kind} that can be predicted; there"
        f" is one for {', '.join(KINDS)}."
      )
  if not thresholds_bytes and not groups:
    return module
  found: dict[str, list[collectives_lib.Collective]] = {}
  for collective in collectives_lib.find(module):
    if collective.kind in KINDS and collective.done_id is not None:
      found.setdefault(collective.computation, []).append(collective)
  given = _by_computation(found, groups)
  editor = editing.Editor(module)
  for computation in module.computations.values():
    if computation.name in found:
      grouping = _Grouping(module, computation, found[computation.name])
      grouping.take(given.get(computation.name, ()))
      grouping.fill(thresholds_bytes)
      merging.regroup(editor, computation, grouping.groups)
  return editor.finish()


def _by_computation(
  found: Mapping[str, Sequence[collectives_lib.Collective]],
  groups: Sequence[Sequence[str]],
) -> dict[str, list[Sequence[str]]]:
  home = {c.name: name for name, inside in found.items() for c in inside}
  given: dict[str, list[Sequence[str]]] = {}
  for group in groups:
    for name in group:
      if name not in home:
        raise ValueError(
          f"No collective called {name} can be combined: a group names the"
          f" instructions that start {', '.join(KINDS)}."
        )
    homes = sorted({home[name] for name in group})
    if len(homes) > 1:
      raise ValueError(
        f"{', '.join(group)} cannot be combined: they are in different"
        f" computations, {', '.join(homes)}."
      )
    for name in homes:
      given.setdefault(name, []).append(group)
  return given


class _Grouping:
  """The parts of one computation, grouped one group after the other.

  Attributes:
    groups: of parts that are combined; those made so far.
  """

  def __init__(
    self,
    module: hlo.Module,
    computation: hlo.Computation,
    collectives: Sequence[collectives_lib.Collective],
  ):
    graph = dependencies.of(computation)
    # In the order of the proto, which is topological and closest to the one
    # that XLA's combiners went through.
    written = {i.id: at for at, i in enumerate(computation.proto.instructions)}
    self._parts = [
      part
      for collective in sorted(collectives, key=lambda c: written[c.start_id])
      for part in parts_lib.of_collective(module, graph, collective)
    ]
    self._bit = {part: 1 << at for at, part in enumerate(self._parts)}
    self._needed = self._needs(graph)
    self.groups: list[merging.Group] = []

  def take(self, given: Iterable[Sequence[str]]) -> None:
    """Groups the collectives of these names."""
    for names in given:
      group = tuple(p for p in self._left() if p.collective.name in names)
      traits = {part.traits for part in group}
      if len({p.collective.name for p in group}) < len(set(names)):
        raise ValueError(
          f"{', '.join(names)} cannot be combined: one of them is in two"
          " groups, or is used as a whole."
        )
      if len(traits) > 1 or any(self._depends(p, group) for p in group):
        raise ValueError(
          f"{', '.join(names)} cannot be combined: they differ in kind,"
          " device groups or type, or one depends on another."
        )
      self._add(group)

  def fill(self, thresholds_bytes: Mapping[str, int]) -> None:
    """Groups the rest, by threshold where there is one."""
    free: list[parts_lib.Part] = []
    kept: dict[str, list[parts_lib.Part]] = {}
    for part in self._left():
      if part.kind in thresholds_bytes:
        free.append(part)
      else:
        kept.setdefault(part.collective.name, []).append(part)
    for parts in kept.values():
      self._add(tuple(parts))
    for group in table.fill(free, thresholds_bytes, depends=self._depends):
      self._add(group)

  def _left(self) -> list[parts_lib.Part]:
    taken = {part for group in self.groups for part in group}
    return [part for part in self._parts if part not in taken]

  def _depends(
    self, part: parts_lib.Part, on: Iterable[parts_lib.Part]
  ) -> bool:
    needed = self._needed[part]
    return any(needed & self._bit[other] for other in on)

  def _add(self, group: merging.Group) -> None:
    """Adds a group; what depends on one part now depends on all."""
    self.groups.append(group)
    if len(group) == 1:
      return
    mask = needs = 0
    for part in group:
      mask |= self._bit[part]
      needs |= self._needed[part]
    for part, needed in self._needed.items():
      if needed & mask or part in group:
        self._needed[part] |= needs
      if needed & mask:
        self._needed[part] |= mask

  def _needs(self, graph: dependencies.Graph) -> dict[parts_lib.Part, int]:
    """The parts that each one depends on, as bits."""
    parts_of: dict[int, list[parts_lib.Part]] = {}
    for part in self._parts:
      assert part.collective.done_id is not None
      parts_of.setdefault(part.collective.start_id, []).append(part)
      parts_of.setdefault(part.collective.done_id, []).append(part)
    needed: dict[parts_lib.Part, int] = {}
    reached: dict[int, int] = {}
    for instruction in graph.computation.instructions:
      id_ = instruction.id
      inside = parts_of.get(id_)
      bits = 0
      if inside is None:
        for before in graph.predecessors[id_]:
          bits |= reached[before]
        if instruction.opcode == "get-tuple-element":
          for part in parts_of.get(instruction.operand_ids[0], ()):
            if part.index == instruction.tuple_index:
              bits = needed[part] | self._bit[part]
      elif id_ == inside[0].collective.start_id:
        for before in graph.control_predecessors[id_]:
          bits |= reached[before]
        for part in inside:
          needed[part] = bits | reached[part.operand_id]
      else:
        for part in inside:
          bits |= needed[part] | self._bit[part]
      reached[id_] = bits
    return needed
