# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The comparing of a target on many clusters: each compiled, or refused.

A cluster for which the target cannot be lowered or compiled has a row that says
why, and the others stand.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Sequence
import contextlib
import dataclasses

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import wire
from lagom_xla.whatif import cases as cases_lib
from lagom_xla.whatif import comparison as comparison_lib
from lagom_xla.whatif import costing

Progress = Callable[[str], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compared:
  """What was compared.

  Attributes:
    rows: of the clusters that were asked for.
    points: of the same nodes in other numbers.
    repeated: what to say of work that all GPUs repeat; "" for nothing.
    stopped: what ended it before all was compared; None if nothing.
  """

  rows: tuple[comparison_lib.Row, ...]
  points: tuple[comparison_lib.Row, ...]
  repeated: str = ""
  stopped: errors.Stopped | None = None


def compare(
  rows: Sequence[cases_lib.Case],
  points: Sequence[cases_lib.Case],
  *,
  load: costing.Load,
  search: comparison_lib.Search,
  num_ahead: int = 0,
  progress: Progress = lambda _: None,
) -> Compared:
  """Compares a target on clusters.

  Where an `errors.Stopped` is raised inside, by a signal's handler, what was
  found so far is kept.

  Args:
    rows: clusters that are searched as asked.
    points: clusters that get a quick search at most.
    load: loads the target for a cluster.
    search: how to search a plan.
    num_ahead: targets that are lowered while others compile in workers.
    progress: called with a few words after each cluster.

  Raises:
    LagomError: the target can be had on no cluster; of the first.
    Stopped: it was raised before there was anything to compare.
  """
  names = {case.cluster.name for case in rows}
  more = [case for case in points if case.cluster.name not in names]
  costs = _Costs(load=load, search=search, names=names, progress=progress)
  stopped = None
  try:
    for group, target in _begun(_grouped([*rows, *more]), load, num_ahead):
      costs.add(group, target)
  except errors.Stopped as stop:
    if not any(row.figures for row in costs.found.values()):
      raise
    stop.is_caught = True
    stopped = stop
  if costs.first_error and not any(r.figures for r in costs.found.values()):
    raise costs.first_error
  return Compared(
    rows=tuple(_of(rows, costs.found)),
    points=tuple(_of(points, costs.found)),
    repeated=costs.repeated,
    stopped=stopped,
  )


@dataclasses.dataclass(kw_only=True)
class _Costs:
  """The rows so far, by the names of their clusters."""

  load: costing.Load
  search: comparison_lib.Search
  names: set[str]
  progress: Progress
  found: dict[str, comparison_lib.Row] = dataclasses.field(default_factory=dict)
  first_error: errors.LagomError | None = None
  repeated: str = ""

  def add(self, group: _Group, target: _Target) -> None:
    """Compiles a group's target, and costs it on each of its clusters."""
    compiled_for = group[0].cluster.name
    try:
      if isinstance(target, errors.LagomError):
        raise target
      compiled = costing.compiled(target)
    except errors.LagomError as error:
      for case in group:
        self._refuse(case, compiled_for, error)
      return
    self.repeated = self.repeated or compiled.repeated
    for case in group:
      try:
        search = self.search
        if case.cluster.name not in self.names and search == "full":
          search = "quick"
        figures = costing.figures(compiled, case.cluster, search, self.load)
      except errors.LagomError as error:
        self._refuse(case, compiled_for, error)
        continue
      name = case.cluster.name
      self.found[name] = _row(case, compiled_for, figures)
      self.progress(f"{name}: {_ms(figures.step.us)}")

  def _refuse(
    self,
    case: cases_lib.Case,
    compiled_for: str,
    error: errors.LagomError,
  ) -> None:
    self.first_error = self.first_error or error
    name = case.cluster.name
    self.found[name] = _row(case, compiled_for, None, errors.first_line(error))
    self.progress(f"{name}: refused")


_Group = Sequence[cases_lib.Case]
# A target that was lowered, or why it could not be.
_Target = target_lib.Target | errors.LagomError
_ms = in_words.milliseconds


def _of(
  cases: Sequence[cases_lib.Case], found: dict[str, comparison_lib.Row]
) -> Iterator[comparison_lib.Row]:
  """The rows of cases, as far as they were looked at."""
  for case in cases:
    row = found.get(case.cluster.name)
    if row is not None:
      yield dataclasses.replace(row, series=case.series)


def _row(
  case: cases_lib.Case,
  compiled_for: str,
  figures: comparison_lib.Figures | None,
  refusal: str = "",
) -> comparison_lib.Row:
  cluster = case.cluster
  return comparison_lib.Row(
    cluster=cluster.name,
    series=case.series,
    num_nodes=cluster.num_nodes,
    num_gpus=cluster.num_devices,
    gpu=cluster.gpu.name,
    gbits_per_gpu=cases_lib.gbits_per_gpu(cluster),
    pcie_gbits=cases_lib.pcie_gbits(cluster),
    fabric=cluster.node.fabric,
    measured_nodes=_measured_nodes(cluster),
    hbm_bytes=cluster.gpu.hbm_bytes,
    compiled_for=compiled_for,
    figures=figures,
    refusal=refusal,
  )


def _measured_nodes(cluster: cluster_lib.Cluster) -> int:
  """On how many nodes collectives were measured; a domain counts whole."""
  most = wire.most_measured_nodes(cluster.node.fabric)
  return max(most, 1) * cluster.node.nodes_per_nvlink_domain


def _grouped(cases: Sequence[cases_lib.Case]) -> list[_Group]:
  """Cases by what they are compiled as, in their order."""
  groups = collections.defaultdict(list)
  for case in cases:
    groups[case.compiled_as].append(case)
  return list(groups.values())


# With what lets go of a compile that was begun of the target.
_Waiting = tuple[_Group, _Target, contextlib.ExitStack]


def _begun(
  groups: Sequence[_Group], load: costing.Load, num_ahead: int
) -> Iterator[tuple[_Group, _Target]]:
  """Targets of groups, some lowered and begun ahead of the one looked at."""
  waiting: collections.deque[_Waiting] = collections.deque()
  try:
    for group in groups:
      waiting.append((group, *_begin(group, load)))
      if len(waiting) > num_ahead:
        yield from _next(waiting)
    while waiting:
      yield from _next(waiting)
  finally:
    for _, _, begun in waiting:
      begun.close()


def _next(
  waiting: collections.deque[_Waiting],
) -> Iterator[tuple[_Group, _Target]]:
  group, target, begun = waiting.popleft()
  with begun:
    yield group, target


def _begin(
  group: _Group, load: costing.Load
) -> tuple[_Target, contextlib.ExitStack]:
  """Lowers a group's target, and starts its schedule where workers can."""
  begun = contextlib.ExitStack()
  try:
    target = load(group[0].cluster)
    begun.enter_context(target.started([config_lib.DEFAULT]))
  except errors.LagomError as error:
    return error, begun
  return target, begun
