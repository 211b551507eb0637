# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Which collectives of a module travel together, by threshold or as told.

A combined collective moves several arrays; each of them is a part that could
travel alone. XLA goes through a computation in topological order and puts parts
together as long as they are of one kind and have the same groups of devices
(and the same type and operation, where they are reduced), none depends on
another, and their sum stays within the threshold; the first part for which that
fails begins the next group. Parts above the threshold stay alone
(xla/service/collective_combiner_utils.h).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import dataclasses

from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.xla_schedule import editing
from lagom_xla.xla_schedule import merging

# Kinds that XLA's combiners take, for which there is a threshold.
KINDS = ("all-gather", "all-reduce", "reduce-scatter")


def change(
  module: hlo.Module,
  *,
  thresholds_bytes: Mapping[str, int],
  groups: Sequence[Sequence[str]],
) -> hlo.Module:
  """Regroups a module's collectives.

  Args:
    module: scheduled.
    thresholds_bytes: by kind, as XLA counts (all-gather what is gathered,
      reduce-scatter what is left, all-reduce the tensor); kinds that are
      missing stay as they are.
    groups: names of the instructions that start what travels together; they
      come before thresholds.

  Raises:
    ValueError: a kind has no threshold, or a group cannot travel together.
  """
  for kind in thresholds_bytes:
    if kind not in KINDS:
      raise ValueError(
        f"XLA has no combine threshold for {kind}; there is one for"
        f" {', '.join(KINDS)}."
      )
  if not thresholds_bytes and not groups:
    return module
  found: dict[str, list[collectives_lib.Collective]] = {}
  for collective in collectives_lib.find(module):
    if collective.kind in KINDS and collective.done_id is not None:
      found.setdefault(collective.computation, []).append(collective)
  told = _by_computation(found, groups)
  editor = editing.Editor(module)
  for computation in module.computations.values():
    if computation.name in found:
      choice = _Choice(module, computation, found[computation.name])
      choice.take(told.get(computation.name, ()))
      choice.fill(thresholds_bytes)
      merging.regroup(editor, computation, choice.groups)
  return editor.finish()


def _by_computation(
  found: Mapping[str, Sequence[collectives_lib.Collective]],
  groups: Sequence[Sequence[str]],
) -> dict[str, list[Sequence[str]]]:
  home = {c.name: name for name, inside in found.items() for c in inside}
  told: dict[str, list[Sequence[str]]] = {}
  for group in groups:
    for name in group:
      if name not in home:
        raise ValueError(
          f"No collective called {name} can be regrouped: a group names the"
          f" instructions that start {', '.join(KINDS)}."
        )
    homes = sorted({home[name] for name in group})
    if len(homes) > 1:
      raise ValueError(
        f"{', '.join(group)} cannot travel together: they are in different"
        f" computations, {', '.join(homes)}."
      )
    for name in homes:
      told.setdefault(name, []).append(group)
  return told


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Key:
  """Parts with different keys cannot travel together."""

  kind: str
  groups: object
  element_type: str
  reduction: str
  is_pipelined: bool


class _Choice:
  """The groups of one computation, while they are chosen.

  Attributes:
    groups: parts that travel together, as far as they are chosen.
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
      for part in merging.parts(module, graph, collective)
    ]
    self._bit = {part: 1 << at for at, part in enumerate(self._parts)}
    self._needed = self._needs(graph)
    self.groups: list[merging.Group] = []

  def take(self, told: Iterable[Sequence[str]]) -> None:
    """Groups the collectives of these names."""
    for names in told:
      group = tuple(p for p in self._left() if p.collective.name in names)
      keys = {_key(part) for part in group}
      if len({p.collective.name for p in group}) < len(set(names)):
        raise ValueError(
          f"{', '.join(names)} cannot travel together: one of them is in two"
          " groups, or is used as a whole."
        )
      if len(keys) > 1 or any(self._depends(p, group) for p in group):
        raise ValueError(
          f"{', '.join(names)} cannot travel together: they differ in kind,"
          " device groups or type, or one depends on another."
        )
      self._add(group)

  def fill(self, thresholds_bytes: Mapping[str, int]) -> None:
    """Groups the rest, by threshold where there is one."""
    left = dict.fromkeys(self._left())
    kept: dict[str, list[merging.Part]] = {}
    for part in list(left):
      if part.collective.kind not in thresholds_bytes:
        kept.setdefault(part.collective.name, []).append(part)
        del left[part]
    for parts in kept.values():
      self._add(tuple(parts))
    while left:
      self._next(left, thresholds_bytes)

  def _next(
    self, left: dict[merging.Part, None], thresholds_bytes: Mapping[str, int]
  ) -> None:
    """Takes the next group out of what is left."""
    group: list[merging.Part] = []
    num_bytes = 0
    for part in list(left):
      if group and _key(part) != _key(group[0]):
        continue
      threshold_bytes = thresholds_bytes[part.collective.kind]
      if part.num_bytes > threshold_bytes or not threshold_bytes:
        del left[part]
        self._add((part,))
        continue
      if num_bytes + part.num_bytes > threshold_bytes:
        break
      if self._depends(part, group):
        break
      group.append(part)
      num_bytes += part.num_bytes
      del left[part]
    if group:
      self._add(tuple(group))

  def _left(self) -> list[merging.Part]:
    taken = {part for group in self.groups for part in group}
    return [part for part in self._parts if part not in taken]

  def _depends(self, part: merging.Part, on: Iterable[merging.Part]) -> bool:
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

  def _needs(self, graph: dependencies.Graph) -> dict[merging.Part, int]:
    """The parts that each one depends on, as bits."""
    parts_of: dict[int, list[merging.Part]] = {}
    for part in self._parts:
      assert part.collective.done_id is not None
      parts_of.setdefault(part.collective.start_id, []).append(part)
      parts_of.setdefault(part.collective.done_id, []).append(part)
    needed: dict[merging.Part, int] = {}
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


def _key(part: merging.Part) -> _Key:
  collective = part.collective
  return _Key(
    kind=collective.kind,
    groups=collective.groups,
    element_type=(
      "" if collective.kind == "all-gather" else hlo.element_type(part.shape)
    ),
    reduction=part.reduction,
    is_pipelined=collective.is_pipelined,
  )
