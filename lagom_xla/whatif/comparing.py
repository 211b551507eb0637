# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares a target on many clusters.

XLA compiles for a GPU and a number of GPUs, and does not know the network. So a
schedule is compiled once for all clusters with the same GPUs, and costed on
each, with the cluster's own NCCL choices, kernel times and replay. If a target
cannot be lowered or compiled for a cluster, that cluster's row says why; the
other rows are not affected.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator, Sequence
import contextlib
import itertools

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
from lagom_xla.report import settings
from lagom_xla.report.page import report
from lagom_xla.search.nccl import settings as settings_lib
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import memory_pool
from lagom_xla.tuner import tuner
from lagom_xla.whatif import cases as cases_lib
from lagom_xla.whatif import comparison as comparison_lib

Load = Callable[[cluster_lib.Cluster], target_lib.Target]
_Target = target_lib.Target | errors.LagomError

# Factors of each cluster's network rate, all else equal.
_NETWORK_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


def compare(
  rows: Sequence[cluster_lib.Cluster],
  points: Sequence[cluster_lib.Cluster],
  *,
  load: Load,
  target: str,
  search: comparison_lib.Search,
  unit: comparison_lib.Unit | None = None,
  per_step: float | None = None,
  num_ahead: int = 0,
  progress: Callable[[str], None] = lambda _: None,
) -> tuple[comparison_lib.Comparison, errors.Stopped | None]:
  """Compares a target on clusters.

  If a signal handler raises `errors.Stopped` meanwhile, this returns the
  results so far.

  Args:
    rows: clusters to search as `search` says.
    points: clusters that get a quick search at most.
    load: loads the target for a cluster.
    target: the user's name of the target.
    search: how to search for a plan.
    unit: the unit of `per_step`.
    per_step: tokens or examples per step on the first cluster.
    num_ahead: number of targets to lower while others compile in workers.
    progress: called with a short text after each cluster.

  Returns:
    The comparison, and what stopped it early, if anything did.

  Raises:
    LagomError: the target compiles for no cluster. This is the error of the
      first cluster.
    Stopped: it was stopped before there was anything to compare.
  """
  # XLA does not see the network: clusters of the same GPUs share a schedule.
  groups: dict[object, dict[str, cluster_lib.Cluster]] = {}
  for cluster in (*rows, *points):
    hardware = cluster.target_config(), cluster.num_nodes, cluster.gpus_per_node
    groups.setdefault(hardware, {}).setdefault(cluster.name, cluster)
  row_names = {cluster.name for cluster in rows}
  row_of: dict[str, comparison_lib.Row] = {}
  first_error: errors.LagomError | None = None
  stopped, repeated = None, ""
  firsts = [next(iter(group.values())) for group in groups.values()]
  try:
    targets = _loaded(firsts, load, num_ahead)
    for group, loaded in zip(groups.values(), targets, strict=True):
      compiled: _Compiled | errors.LagomError
      try:
        if isinstance(loaded, errors.LagomError):
          raise loaded
        compiled = _Compiled(loaded)
        repeated = repeated or compiled.repeated
      except errors.LagomError as error:
        compiled = error
      for name, cluster in group.items():
        how = "quick" if search == "full" and name not in row_names else search
        figures, refusal = None, ""
        try:
          if isinstance(compiled, errors.LagomError):
            raise compiled
          figures = _figures(compiled, cluster, how, load)
          words = in_words.milliseconds(figures.step.us)
        except errors.LagomError as error:
          first_error, refusal = first_error or error, errors.first_line(error)
          words = "refused"
        row_of[name] = _row(cluster, next(iter(group)), figures, refusal)
        progress(f"{name}: {words}")
  except errors.Stopped as stop:
    if not any(row.figures for row in row_of.values()):
      raise
    stop.is_caught = True
    stopped = stop
  if first_error and not any(row.figures for row in row_of.values()):
    raise first_error
  compared = comparison_lib.of_rows(
    *(
      [row_of[c.name] for c in some if c.name in row_of]
      for some in (rows, points)
    ),
    target=target,
    search=search,
    unit=unit,
    per_step=per_step,
    repeated=repeated,
  )
  return compared, stopped


def _loaded(
  clusters: Iterable[cluster_lib.Cluster], load: Load, num_ahead: int
) -> Iterator[_Target]:
  """Each cluster's target or its error, with compiles started ahead."""
  with contextlib.ExitStack() as begun:

    def begin(cluster: cluster_lib.Cluster) -> _Target:
      try:
        target = load(cluster)
        begun.enter_context(target.started([config_lib.DEFAULT]))
      except errors.LagomError as error:
        return error
      return target

    left = map(begin, clusters)
    ahead = collections.deque(itertools.islice(left, num_ahead + 1))
    while ahead:
      yield ahead.popleft()
      ahead.extend(itertools.islice(left, 1))


class _Compiled:
  """A target as XLA compiles it by default.

  Attributes:
    target: the target.
    step: the step that runs, on the cluster that it was compiled for.
    memory_bytes: peak memory of a GPU: XLA's own figure if it was compiled
      fully, else an estimate from the schedule.
    flops: FLOPs of all GPUs' matrix products; if possible, counted in the
      program before partitioning, so that work repeated on GPUs counts once.
    repeated: a warning about matrix products that GPUs repeat; "" for none.
  """

  def __init__(self, target: target_lib.Target):
    scheduled = evaluation.scheduled_step(target)
    run = evaluation.run_of(target, config_lib.DEFAULT, scheduled)
    self.target, self.step = target, run.step
    module = run.step.analysis.module
    peak_bytes = run.peak_bytes
    if peak_bytes is None:
      peak_bytes = memory.peak_bytes(module, aliasing.of(module))
    self.memory_bytes: int = peak_bytes
    device_flops = run.step.analysis.gemm_flops
    whole_flops = repeated_work.flops_of_all_devices(target)
    self.flops = whole_flops or device_flops * target.cluster.num_devices
    self.repeated = repeated_work.warning(target, device_flops)


def _figures(
  compiled: _Compiled,
  cluster: cluster_lib.Cluster,
  search: comparison_lib.Search,
  load: Load,
) -> comparison_lib.Figures:
  """The figures on a cluster of a step compiled for the same GPUs."""
  step = _on(compiled.step, cluster)
  replayed = step.timeline(step.default)
  gain: report.Estimate | None = None
  plan: list[str] = []
  if search == "none":
    times = uncertainty.times(step, step.default)
  elif search == "quick":
    searched = settings_lib.search(step)
    times, tuned = searched.default_times, searched.tuned_times
    gain = report.Estimate.of(uncertainty.gain(times, tuned))
    plan += _settings(step, searched.configuration)
  else:
    is_same = cluster == compiled.target.cluster
    tuning = tuner.tune(compiled.target if is_same else load(cluster))
    kept, times = tuning.kept, tuning.search.default.default_times
    gain = report.Estimate.of(uncertainty.gain(times, kept.tuned_times))
    if not tuning.plan.xla.is_default:
      plan.append(settings.config_in_words(tuning.plan.xla))
    if kept.takes_plugin:
      plan += _settings(kept.runs, kept.settings)
    else:
      plan += [f"{n}={v}" for n, v in tuning.plan.nccl_env.items()]
  return comparison_lib.Figures(
    step=report.Estimate.of(uncertainty.step_time(times)),
    exposed_us=replayed.total_exposed_us,
    slowdown_us=replayed.total_slowdown_us,
    between_nodes_us=sum(
      step.executions[key] * step.predict(key, step.default[key]).time_us
      for key in step.keys
      if key.num_nodes > 1
    ),
    lower_bound_us=lower_bound.us(step),
    gain=gain,
    plan=tuple(plan),
    flops=compiled.flops,
    per_step=None,
    memory_bytes=compiled.memory_bytes,
    calls_that_may_communicate=tuple(
      dict.fromkeys(step.calls_that_may_communicate.values())
    ),
    run_otherwise=in_words.run_otherwise(step.run_otherwise()),
    networks=tuple(_networks(step)),
  )


def _on(step: step_lib.Step, cluster: cluster_lib.Cluster) -> step_lib.Step:
  """A step on another cluster; kernel times are reused if the GPU is equal."""
  if cluster == step.cluster:
    return step
  is_same_gpu = cluster.gpu == step.cluster.gpu
  return step_lib.Step(
    step.analysis,
    cluster,
    kernels_from=step if is_same_gpu else None,
    max_channels=step.max_channels,
    switches=evaluation.switches({}, cluster),
    asked=step.asked,
  )


def _networks(step: step_lib.Step) -> Iterator[comparison_lib.AtRate]:
  if step.cluster.num_nodes == 1:
    return
  rate_gbits = cases_lib.gbits_per_gpu(step.cluster)
  for factor in _NETWORK_FACTORS:
    other = step
    if factor != 1:
      network = cases_lib.with_network(step.cluster, rate_gbits * factor)
      other = _on(step, network)
    yield comparison_lib.AtRate(
      gbits_per_gpu=rate_gbits * factor,
      step_us=other.timeline(other.default).step_time_us,
    )


def _settings(
  step: step_lib.Step, configuration: step_lib.Configuration
) -> Iterator[str]:
  """Settings that differ from NCCL's own choices, in words."""
  for key in step.keys:
    setting = configuration[key]
    if setting != step.default[key]:
      yield (
        f"{in_words.tuning_key(key.kind, key.num_bytes, key.num_ranks)}:"
        f" {in_words.setting(setting)}"
      )


def _row(
  cluster: cluster_lib.Cluster,
  compiled_for: str,
  figures: comparison_lib.Figures | None,
  refusal: str,
) -> comparison_lib.Row:
  fabric = cluster.node.fabric
  # Measured counts are in NVLink domains, of one or more nodes.
  measured = max(wire.most_measured_nodes(fabric), 1)
  return comparison_lib.Row(
    cluster=cluster.name,
    series=cases_lib.series(cluster),
    num_nodes=cluster.num_nodes,
    num_gpus=cluster.num_devices,
    gpu=cluster.gpu.name,
    gbits_per_gpu=cases_lib.gbits_per_gpu(cluster),
    pcie_gbits=cases_lib.pcie_gbits(cluster),
    fabric=fabric,
    measured_nodes=measured * cluster.node.nodes_per_nvlink_domain,
    hbm_bytes=cluster.gpu.hbm_bytes,
    pool_bytes=memory_pool.num_bytes(cluster.gpu.hbm_bytes),
    compiled_for=compiled_for,
    figures=figures,
    refusal=refusal,
  )
