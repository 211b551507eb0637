# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The comparing of a target on many clusters: each compiled, or refused.

XLA's compiler asks for the GPU and for how many there are, never for the
network. So a schedule is compiled once for all clusters that have those in
common, and costed on each: NCCL's choices, kernels and the replay are each
cluster's own. A cluster for which the target cannot be lowered or compiled has
a row that says why, and the others stand.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Sequence
import contextlib
import dataclasses

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import repeated_work
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import lower_bound
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.costs import wire
from lagom_xla.passes.schedule import aliasing
from lagom_xla.passes.schedule import memory
from lagom_xla.plan import made_for
from lagom_xla.report import notes
from lagom_xla.report.page import contents
from lagom_xla.report.page import report
from lagom_xla.search.nccl import settings as settings_lib
from lagom_xla.search.xla import evaluation
from lagom_xla.tuner import tuner
from lagom_xla.whatif import cases as cases_lib
from lagom_xla.whatif import comparison as comparison_lib

_estimate = report.Estimate.of
Load = Callable[[cluster_lib.Cluster], target_lib.Target]

# What the network of each cluster is multiplied by, all else equal.
NETWORK_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiled:
  """A target as XLA compiles it by default.

  Attributes:
    target: what was compiled.
    step: it as it runs, on the cluster that it was compiled for.
    memory_bytes: of a GPU, at the peak of the step: XLA's own figure where it
      was compiled to the end, else an estimate from the schedule.
    flops: of all GPUs' matrix products; of those in the program before it is
      partitioned where that tells, so that what GPUs repeat counts once.
    repeated: what to say of products that GPUs repeat; "" for nothing.
  """

  target: target_lib.Target
  step: step_lib.Step
  memory_bytes: int
  flops: float
  repeated: str


def compile_target(target: target_lib.Target) -> Compiled:
  """Compiles a target as it runs by default.

  Raises:
    CompileError: XLA refuses it.
  """
  scheduled = evaluation.scheduled_step(target)
  run = evaluation.run_of(target, config_lib.DEFAULT, scheduled)
  memory_bytes = run.peak_bytes
  if memory_bytes is None:
    module = run.step.analysis.module
    memory_bytes = memory.peak_bytes(module, aliasing.of(module))
  device_flops = run.step.analysis.gemm_flops
  whole_flops = repeated_work.flops_of_all_devices(target)
  return Compiled(
    target=target,
    step=run.step,
    memory_bytes=memory_bytes,
    flops=whole_flops or device_flops * target.cluster.num_devices,
    repeated=repeated_work.warning(target, device_flops),
  )


def cost(
  compiled: Compiled,
  cluster: cluster_lib.Cluster,
  search: comparison_lib.Search,
  load: Load,
) -> comparison_lib.Figures:
  """The figures of a step on a cluster.

  Args:
    compiled: for as many of the same GPUs.
    cluster: which.
    search: how to search its plan.
    load: loads the target for another cluster, which a full search needs.

  Raises:
    LagomError: of a full search, what XLA refuses of today's step.
  """
  step = _on(compiled.step, cluster)
  replayed = step.timeline(step.default)
  gain: uncertainty.Estimate | None = None
  plan: tuple[str, ...] = ()
  if search == "full":
    is_same = cluster == compiled.target.cluster
    tuning = tuner.tune(compiled.target if is_same else load(cluster))
    times = tuning.search.default.default_times
    gain = uncertainty.gain(times, tuning.kept.tuned_times)
    if not tuning.plan.xla.is_default:
      plan = (contents.config_in_words(tuning.plan.xla),)
    if tuning.kept.takes_plugin:
      plan += tuple(_settings(tuning.kept.runs, tuning.kept.settings))
    else:
      plan += tuple(f"{n}={v}" for n, v in tuning.plan.nccl_env.items())
  elif search == "quick":
    found = settings_lib.search(step)
    times = found.default_times
    gain = uncertainty.gain(times, found.tuned_times)
    plan = tuple(_settings(step, found.configuration))
  else:
    times = uncertainty.times(step, step.default)
  return comparison_lib.Figures(
    step=_estimate(uncertainty.step_time(times)),
    exposed_us=replayed.total_exposed_us,
    slowdown_us=replayed.total_slowdown_us,
    between_nodes_us=_between_nodes_us(step),
    lower_bound_us=lower_bound.us(step),
    gain=None if gain is None else _estimate(gain),
    plan=plan,
    flops=compiled.flops,
    per_step=None,
    memory_bytes=compiled.memory_bytes,
    networks=tuple(_networks(step)),
  )


def _on(step: step_lib.Step, cluster: cluster_lib.Cluster) -> step_lib.Step:
  """A step on a cluster of as many GPUs; equal ones take as long."""
  if cluster == step.cluster:
    return step
  is_same_gpu = cluster.gpu == step.cluster.gpu
  known = step if is_same_gpu else None
  return step_lib.Step(
    step.analysis,
    cluster,
    rescheduled_from=known,
    max_channels=step.max_channels,
  )


def _networks(step: step_lib.Step) -> Iterator[comparison_lib.AtRate]:
  if step.cluster.num_nodes == 1:
    return
  rate_gbits = cases_lib.gbits_per_gpu(step.cluster)
  for factor in NETWORK_FACTORS:
    other = step
    if factor != 1:
      network = cases_lib.with_network(step.cluster, rate_gbits * factor)
      other = _on(step, network)
    yield comparison_lib.AtRate(
      gbits_per_gpu=rate_gbits * factor,
      step_us=other.timeline(other.default).step_time_us,
    )


def _between_nodes_us(step: step_lib.Step) -> float:
  return sum(
    step.executions[key] * step.predict(key, step.default[key]).time_us
    for key in step.keys
    if key.num_nodes > 1
  )


def _settings(
  step: step_lib.Step, configuration: step_lib.Configuration
) -> Iterator[str]:
  """NCCL settings that are not its own, in words."""
  for key in step.keys:
    setting = configuration[key]
    if setting != step.default[key]:
      yield (
        f"{in_words.tuning_key(key.kind, key.num_bytes, key.num_ranks)}:"
        f" {in_words.setting(setting)}"
      )


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
  load: Load,
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

  load: Load
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
      compiled = compile_target(target)
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
        figures = cost(compiled, case.cluster, search, self.load)
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
  groups: Sequence[_Group], load: Load, num_ahead: int
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


def _begin(group: _Group, load: Load) -> tuple[_Target, contextlib.ExitStack]:
  """Lowers a group's target, and starts its schedule where workers can."""
  begun = contextlib.ExitStack()
  try:
    target = load(group[0].cluster)
    begun.enter_context(target.started([config_lib.DEFAULT]))
  except errors.LagomError as error:
    return error, begun
  return target, begun


def comparison(
  compared: Compared,
  *,
  target: str,
  search: comparison_lib.Search,
  unit: comparison_lib.Unit | None = None,
  per_step: float | None = None,
) -> comparison_lib.Comparison:
  """The comparison of what was compared.

  Args:
    compared: with figures for one cluster at least.
    target: what the user called it.
    search: how plans were searched.
    unit: what a step has so many of.
    per_step: how many, on the first cluster.
  """
  everything = (*compared.rows, *compared.points)
  base = compared.rows[0]
  is_lost = per_step is not None and base.figures is None
  if is_lost:
    unit = None
  rows = comparison_lib.with_per_step(compared.rows, base, per_step)
  points = comparison_lib.with_per_step(compared.points, base, per_step)
  return comparison_lib.Comparison(
    target=target,
    made_with=made_for.versions(),
    search=search,
    unit=unit,
    scaling=comparison_lib.scaling_in_words(everything, unit),
    rows=rows,
    points=points,
    findings=tuple(comparison_lib.findings_of(rows, points, unit)),
    notes=(
      *([_lost(base)] if is_lost else []),
      *comparison_lib.notes(rows),
      *_notes(compared, search),
    ),
  )


def _lost(base: comparison_lib.Row) -> str:
  return (
    "What a step has per second is not known, as the number given is of the"
    f" first cluster, {base.cluster}, which has no figures."
  )


def _notes(compared: Compared, search: comparison_lib.Search) -> Iterator[str]:
  if compared.repeated:
    yield compared.repeated
  if note := notes.uncosted():
    yield f"{note}."
  everything = (*compared.rows, *compared.points)
  known = [row for row in everything if row.figures is not None]
  num_compiled = len({row.compiled_for for row in known})
  if num_compiled < len({row.cluster for row in known}):
    yield (
      f"{in_words.count(num_compiled, 'compiled schedule')} for all clusters:"
      " those of as many of the same GPUs run the same one, costed on the"
      " network of each."
    )
  if beyond := comparison_lib.beyond_measured(known):
    yield beyond
  if search == "quick":
    yield (
      "Plans are of NCCL's settings alone: --search=full tries XLA's options,"
      " too."
    )
  if search == "full" and compared.points:
    yield "By nodes, NCCL settings alone were searched."
