# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Combine groups: which collectives become one, each placed on its own.

Combining saves latency and costs overlap: a combined collective starts when its
last operand is there and is waited for by its first user. Where one of them
should end and the next begin depends on the kernels around, so no threshold in
bytes is right everywhere.

Collectives that XLA could combine, in schedule order, form a *chain*; groups
are runs of a chain. From the best of a few thresholds the search moves one
border at a time, in three ways (join two neighbours, split one in the middle,
hand one collective over), and keeps what makes the predicted step shorter,
until no move does.

XLA combines before it pipelines and double-buffers loops, so a collective of
the program may have several copies in the schedule. What is combined in the
program is combined wherever copies of it meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import itertools

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import nccl_channels
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import combine
from lagom_xla.passes import hlo
from lagom_xla.passes.combine import table
from lagom_xla.xla_schedule import combiner
from lagom_xla.xla_schedule import reschedule

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


def combinable_chains(apart: hlo.Module) -> tuple[tuple[Member, ...], ...]:
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


# Labels (`passes/combine/keys.py`) of what is combined.
Group = tuple[str, ...]
Chain = tuple[Group, ...]
Grouping = tuple[Chain, ...]
_MIB = 2**20
_THRESHOLDS_BYTES = tuple(size * _MIB for size in (0, 8, 30, 128, 512, 2048))


# Instructions in all predictions of a search: a large module gets fewer.
_MAX_PREDICTED_INSTRUCTIONS = 1_000_000


def max_predictions(module: hlo.Module) -> int:
  """How many schedules of a module are predicted; of a large one, a few."""
  return max(_MAX_PREDICTED_INSTRUCTIONS // module.num_instructions, 4)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Result:
  """What a search found.

  Attributes:
    groups: labels of two or more to combine; the rest stays alone.
    num_predicted: schedules that were predicted.
  """

  groups: tuple[Group, ...]
  num_predicted: int


def search(
  apart: hlo.Module, cluster: cluster_lib.Cluster, *, max_predictions: int
) -> Result:
  """Searches the groups that make the predicted step shortest.

  Args:
    apart: the module scheduled with every collective alone, from a compile
      with combine groups ().
    cluster: what it was compiled for.
    max_predictions: schedules that may be predicted, at least one.
  """
  chains = combinable_chains(apart)
  copies = {m.label: m.copies for chain in chains for m in chain}
  predictor = _Predictor(apart, cluster, copies, max_predictions)
  starts = [
    tuple(_by_threshold(chain, threshold) for chain in chains)
    for threshold in _THRESHOLDS_BYTES
  ]
  best = min(predictor.affordable(starts), key=predictor.step_time_us)
  best_us = predictor.step_time_us(best)
  is_better = True
  while is_better:
    is_better = False
    for moved in _moves(best):
      if predictor.is_spent:
        break
      moved_us = predictor.step_time_us(moved)
      if moved_us < best_us:
        best, best_us, is_better = moved, moved_us, True
        break
  return Result(
    groups=tuple(g for chain in best for g in chain if len(g) > 1),
    num_predicted=predictor.num_predicted,
  )


def _by_threshold(chain: Sequence[Member], threshold_bytes: int) -> Chain:
  """The groups of a chain as XLA fills them.

  XLA goes on filling a group past what is above the threshold; groups of a
  chain are runs of it, so here that ends the run.
  """
  groups: list[Group] = []
  for _, run in itertools.groupby(
    chain, key=lambda member: member.num_bytes > threshold_bytes
  ):
    filled = table.fill(
      run,
      dict.fromkeys((member.kind for member in chain), threshold_bytes),
      depends=lambda member, others: False,  # Not known before it is predicted.
    )
    groups += (tuple(m.label for m in group) for group in filled)
  return tuple(groups)


def _moves(grouping: Grouping) -> Iterator[Grouping]:
  """All groupings that one move leads to."""
  for at, chain in enumerate(grouping):
    for changed in _moves_in(chain):
      yield (*grouping[:at], changed, *grouping[at + 1 :])


def _moves_in(chain: Chain) -> Iterator[Chain]:
  for at, (left, right) in enumerate(itertools.pairwise(chain)):
    before, after = chain[:at], chain[at + 2 :]
    yield (*before, left + right, *after)
    if len(left) > 1:
      yield (*before, left[:-1], left[-1:] + right, *after)
    if len(right) > 1:
      yield (*before, left + right[:1], right[1:], *after)
  for at, group in enumerate(chain):
    if len(group) > 1:
      half = len(group) // 2
      yield (*chain[:at], group[:half], group[half:], *chain[at + 1 :])


class _Predictor:
  """Step times of groupings, each predicted once."""

  def __init__(
    self,
    apart: hlo.Module,
    cluster: cluster_lib.Cluster,
    copies: Mapping[str, Mapping[Place, str]],
    max_predictions: int,
  ):
    # Groups act in a process that runs already, under the cap that it has.
    most = nccl_channels.most({})
    self._step = step_lib.of_module(apart, cluster, max_channels=most)
    self._copies = copies
    self._max_predictions = max_predictions
    self._known: dict[Grouping, float] = {}

  @property
  def num_predicted(self) -> int:
    return len(self._known)

  @property
  def is_spent(self) -> bool:
    return self.num_predicted >= self._max_predictions

  def affordable(self, groupings: Sequence[Grouping]) -> list[Grouping]:
    """The first of these that may all be predicted, each once."""
    return list(dict.fromkeys(groupings))[: self._max_predictions]

  def step_time_us(self, grouping: Grouping) -> float:
    """Under NCCL's own choices; infinite where it cannot be."""
    if grouping not in self._known:
      self._known[grouping] = self._predict(grouping)
    return self._known[grouping]

  def _predict(self, grouping: Grouping) -> float:
    groups = [
      names
      for chain in grouping
      for group in chain
      for names in self._names(group)
    ]
    try:
      module = reschedule.reschedule(
        self._step.analysis.module, groups, self._step.cluster
      )
    except ValueError:  # One depends on another.
      return float("inf")
    step = self._step.rescheduled(module)
    return step.timeline(step.default).step_time_us

  def _names(self, group: Group) -> Iterator[tuple[str, ...]]:
    """What is combined in the schedule where these labels are."""
    places = dict.fromkeys(
      place for label in group for place in self._copies[label]
    )
    for place in places:
      names = tuple(
        self._copies[label][place]
        for label in group
        if place in self._copies[label]
      )
      if len(names) > 1:
        yield names
