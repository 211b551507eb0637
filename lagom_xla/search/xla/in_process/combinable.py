# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Combinable collectives of a program, as its schedule has them.

XLA combines before it pipelines and double-buffers loops, so a collective of
the program may have several copies in the schedule. What is combined in the
program is combined wherever copies of it meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses

from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import combine
from lagom_xla.passes import hlo
from lagom_xla.passes.combine import table
from lagom_xla.xla_schedule import combiner

# What a copy could be combined with, and which copy among those it is.
Place = tuple[table.Traits, int]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Member:
  """A collective of the program.

  Attributes:
    label: its label.
    kind: its HLO opcode.
    num_bytes: as XLA's combiners count them.
    traits: what it has in common with the other members of its chain. How a
      reduction reduces is not among them, as a collective's record does not
      hold it; groups that differ in it are refused when they are predicted.
    copies: names of the instructions that start it in the schedule, by place:
      what could be combined with it, and which copy among those this is.
  """

  label: str
  kind: str
  num_bytes: int
  traits: table.Traits
  copies: Mapping[Place, str]


def chains(apart: hlo.Module) -> tuple[tuple[Member, ...], ...]:
  """Two or more collectives each that XLA could combine, in schedule order.

  Args:
    apart: the module scheduled with every collective alone.
  """
  found: dict[str, list[collectives_lib.Collective]] = {}
  labels = combine.labels(apart)
  for collective in collectives_lib.find(apart):
    is_started = collective.done_id is not None and collective.name in labels
    if is_started and collective.kind in combiner.KINDS:
      (label,) = labels[collective.name]
      found.setdefault(label, []).append(collective)
  by_traits: dict[table.Traits, list[Member]] = {}
  for label, copies in found.items():
    # Not the copy that a pipelined loop runs ahead.
    main = max(copies, key=lambda copy: copy.executions)
    member = Member(
      label=label,
      kind=main.kind,
      num_bytes=table.combined_bytes(main),
      traits=table.traits_of_collective(main),
      copies=_by_place(copies),
    )
    by_traits.setdefault(member.traits, []).append(member)
  return tuple(tuple(chain) for chain in by_traits.values() if len(chain) > 1)


def _by_place(
  copies: Sequence[collectives_lib.Collective],
) -> dict[Place, str]:
  places: dict[Place, str] = {}
  for copy in copies:
    traits = table.traits_of_collective(copy)
    nth = sum(place[0] == traits for place in places)
    places[traits, nth] = copy.name
  return places
