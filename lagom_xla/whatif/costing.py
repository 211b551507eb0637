# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The figures of one compiled step on one cluster.

XLA's compiler asks for the GPU and for how many there are, never for the
network. So a schedule is compiled once for all clusters that have those in
common, and costed on each: NCCL's choices, kernels and the replay are each
cluster's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import dataclasses

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import repeated_work
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import lower_bound
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.passes.schedule import aliasing
from lagom_xla.passes.schedule import memory
from lagom_xla.report.page import settings as settings_words
from lagom_xla.report.page import story as story_lib
from lagom_xla.search.nccl import settings as settings_lib
from lagom_xla.search.xla import as_run
from lagom_xla.tuner import tuner
from lagom_xla.tuner import tuning as tuning_lib
from lagom_xla.whatif import cases as cases_lib
from lagom_xla.whatif import comparison as comparison_lib

_estimate = story_lib.Estimate.of
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


def compiled(target: target_lib.Target) -> Compiled:
  """Compiles a target as it runs by default.

  Raises:
    CompileError: XLA refuses it.
  """
  scheduled = as_run.scheduled(target)
  run = as_run.run(target, config_lib.DEFAULT, scheduled)
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


def figures(
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
    plan = (
      *_options(tuning),
      *_nccl(tuning),
    )
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


def _options(tuning: tuning_lib.Tuning) -> Iterator[str]:
  if not tuning.plan.xla.is_default:
    yield settings_words.config_in_words(tuning.plan.xla)


def _nccl(tuning: tuning_lib.Tuning) -> Iterator[str]:
  if tuning.kept.takes_plugin:
    yield from _settings(tuning.kept.runs, tuning.kept.settings)
  else:
    yield from (f"{n}={value}" for n, value in tuning.plan.nccl_env.items())


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
