# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluation: turns a config into a candidate.

XLA schedules the target with the config, and compiles it fully if memory is
short. Then the NCCL settings are searched, and the whole step is replayed, as
predicted and in each scenario of the model's errors (costs/uncertainty.py). A
step that does not fit in the device's memory is refused.

Most candidates need only a schedule. If memory is short, XLA rematerializes
after scheduling, which only a full compile shows: the step then takes longer,
by what is computed and gathered again.

A search compares schedules by what overlaps, so it may make them from a fused
module, whose instructions have other names. Scheduler profiles and orders refer
to XLA's own names, as do users: `from_the_beginning` restores them.

Workers compile the configs that a search proposes together in parallel, but
they are evaluated one by one, in the order proposed (`Turns`). So the result
does not depend on the number of workers. A batch that ends early wastes at most
one compile per worker.
"""

from __future__ import annotations

import collections
from collections.abc import (
  Callable,
  Generator,
  Iterable,
  Iterator,
  Mapping,
  MutableMapping,
  Sequence,
)
import contextlib
import dataclasses

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import lowered
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import routes as routes_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.costs import xla_kernels
from lagom_xla.flags import collective_routes
from lagom_xla.flags import nccl_channels
from lagom_xla.flags import xla_kernels as xla_kernel_options
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.passes.schedule import digest
from lagom_xla.passes.schedule import memory
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.nccl import settings as settings_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import knobs
from lagom_xla.search.xla import memory_limit
from lagom_xla.search.xla import memory_pool
from lagom_xla.search.xla.candidates import Candidate
from lagom_xla.search.xla.candidates import Refused

InTurn = Callable[
  [Sequence[config_lib.XlaConfig]],
  Generator[config_lib.XlaConfig, None, None],
]


def one_by_one(
  configs: Sequence[config_lib.XlaConfig],
) -> Generator[config_lib.XlaConfig, None, None]:
  """The configs, none of them started ahead."""
  yield from configs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turns:
  """Starts the next configs in a target's workers.

  Attributes:
    target: what is compiled.
    is_to_the_end: whether to start full compiles, which steps short of memory
      need and which include the schedule.
  """

  target: target_lib.Target
  is_to_the_end: bool = False

  @property
  def num_workers(self) -> int:
    """The number of compiles that can run at once beside this process."""
    return self.target.num_workers

  @property
  def of_arms(self) -> Turns:
    """Turns for arms, one of which is kept if nothing gains more.

    What is kept is compiled fully anyway, which usually takes little longer.
    """
    is_near = self.target.ends_before_code
    return dataclasses.replace(
      self, is_to_the_end=self.is_to_the_end or is_near
    )

  @contextlib.contextmanager
  def begun(self, configs: Iterable[config_lib.XlaConfig]) -> Iterator[None]:
    """Starts compiles of configs in this order, and drops them at the end."""
    with contextlib.ExitStack() as stack:
      for config in configs:
        stack.enter_context(self._begun(config))
      yield

  def ahead(
    self, configs: Sequence[config_lib.XlaConfig]
  ) -> Generator[config_lib.XlaConfig, None, None]:
    """The configs, with as many started after each as there are workers."""
    with contextlib.ExitStack() as stack:
      num_begun = 0
      for position, config in enumerate(configs):
        # One more compile waits for the first free worker.
        until = position + 1 + self.num_workers
        for begun in configs[num_begun:until]:
          stack.enter_context(self._begun(begun))
        num_begun = max(num_begun, until)
        yield config

  def _begun(
    self, config: config_lib.XlaConfig
  ) -> contextlib.AbstractContextManager[None]:
    if self.is_to_the_end:
      return self.target.compiling(config)
    return self.target.started([config])


def new_unknown_loop(module: hlo.Module, default: hlo.Module) -> str | None:
  """A loop of unknown length that the default schedule lacks; None if none."""
  known = _by_place(default)
  return next(
    (name for place, name in _by_place(module).items() if place not in known),
    None,
  )


def _by_place(module: hlo.Module) -> dict[str, str]:
  """Loops of unknown length: origin, which copies share -> name."""
  unknown = module.loops_of_unknown_length
  return {
    loop.metadata.op_name or loop.name: loop.name
    for computation in module.computations.values()
    for loop in computation.loops
    if loop.name in unknown
  }


def scheduled_step(
  target: target_lib.Target,
  config: config_lib.XlaConfig = config_lib.DEFAULT,
) -> step_lib.Step:
  """The step as XLA schedules it with a config, with its cap on channels.

  Raises:
    CompileError: XLA refuses it.
  """
  return of_schedule(target.schedule(config), target, config)


def of_schedule(
  module: hlo.Module, target: target_lib.Target, config: config_lib.XlaConfig
) -> step_lib.Step:
  """The step of a schedule that XLA made with a config."""
  return step_lib.of_module(
    module,
    target.cluster,
    max_channels=nccl_channels.most(config.options),
    num_streams=knobs.num_streams(config.options),
    switches=switches(config.options, target.cluster),
    asked=asked(config.options),
  )


def switches(
  options: Mapping[str, object], cluster: cluster_lib.Cluster
) -> xla_kernels.Switches:
  """Which of XLA's own kernels may run, with options on top of XLA_FLAGS."""
  has_several = cluster.node.nodes_per_nvlink_domain > 1 or (
    cluster.processes_per_node > 1
  )
  kinds = collectives_lib.KINDS if has_several else ()
  return xla_kernels.Switches(
    off=xla_kernel_options.off(options),
    across_processes=frozenset(
      filter(xla_kernel_options.span_processes, kinds)
    ),
    most_exchanging=xla_kernel_options.most_exchanging(),
    exchanges_on_device=xla_kernel_options.exchanges_on_device(options),
  )


def asked(options: Mapping[str, object]) -> routes_lib.Asked:
  """The routes that options on top of XLA_FLAGS ask for, and NCCL's version."""
  return routes_lib.Asked(
    symmetric=collective_routes.symmetric(options),
    asks_for_no_sm=collective_routes.asks_for_no_sm(options),
    copies_locally=collective_routes.copies_locally(options),
    permutes_apart=collective_routes.permutes_apart(options),
    nccl_version=collective_routes.nccl_version(),
  )


class Steps:
  """Steps of a target as XLA schedules them, each read once.

  Attributes:
    target: the target.
  """

  def __init__(self, target: target_lib.Target):
    self.target = target
    self._known: list[tuple[config_lib.XlaConfig, step_lib.Step]] = []
    self._runs: list[tuple[config_lib.XlaConfig, Run]] = []

  def __call__(self, config: config_lib.XlaConfig) -> step_lib.Step:
    """`scheduled_step`, cached."""
    for known, step in self._known:
      if known == config:
        return step
    step = scheduled_step(self.target, config)
    self._known.append((config, step))
    return step

  def running(self, config: config_lib.XlaConfig) -> Run:
    """`run_of`, cached."""
    for known, run in self._runs:
      if known == config:
        return run
    run = run_of(self.target, config, self(config))
    self._runs.append((config, run))
    return run


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """A step as it runs.

  Attributes:
    step: the step.
    peak_bytes: peak device memory; None if it was not compiled fully, or XLA
      does not report it.
  """

  step: step_lib.Step
  peak_bytes: int | None = None


def run_of(
  target: target_lib.Target,
  config: config_lib.XlaConfig,
  scheduled: step_lib.Step,
) -> Run:
  """The step that runs under a config, and its peak memory if known.

  Compiles fully if the schedule is short of memory and the target allows it.

  Args:
    target: what is compiled.
    config: the config to compile with.
    scheduled: the step as XLA schedules it with that config.

  Raises:
    CompileError: XLA scheduled it but cannot compile it fully.
  """
  if target.obstacle:
    return Run(step=scheduled)
  device_bytes = target.cluster.gpu.hbm_bytes
  is_short = memory.is_short_of_memory(
    scheduled.analysis.module,
    device_bytes,
    memory_limit.slop_percent(config.options),
    pool_bytes=memory_pool.num_bytes(device_bytes),
  )
  if not is_short:
    return Run(step=scheduled)
  compiled = target.compile(config)
  runs = of_compiled(scheduled, compiled.module)
  return Run(step=runs, peak_bytes=compiled.peak_bytes)


def warning(target: target_lib.Target, peak_bytes: int | None) -> str:
  """The warning about a step that does not fit on its GPUs; "" if it fits.

  Args:
    target: what is compiled.
    peak_bytes: its peak memory, as in `Run`.
  """
  device_bytes = target.cluster.gpu.hbm_bytes
  if peak_bytes is None or peak_bytes <= memory_pool.num_bytes(device_bytes):
    return ""
  return (
    f"{target.name} does not fit on {target.cluster.name}: it needs"
    f" {in_words.gigabytes(peak_bytes)} at its peak, of"
    f" {memory_pool.of_a_gpu(device_bytes)}. Times are for GPUs with enough"
    f" memory.{memory_pool.advice(peak_bytes, device_bytes)}"
  )


def of_compiled(
  scheduled: step_lib.Step, compiled: hlo.Module
) -> step_lib.Step:
  """The step of a compiled module, or the schedule's if they are alike.

  They differ if XLA rematerialized values or changed collectives.
  """
  num_streams = scheduled.analysis.num_streams
  analysis = overlap_lib.analyze(compiled, num_streams=num_streams)
  ran, expected = (
    collections.Counter((c.kind, c.form, c.nccl_bytes) for c in a.collectives)
    for a in (analysis, scheduled.analysis)
  )
  if ran == expected and not memory.recomputed(compiled):
    return scheduled
  return scheduled.compiled_as(analysis)


def evaluate(
  config: config_lib.XlaConfig,
  *,
  target: target_lib.Target,
  without_plugin: channel_cap.WithoutPlugin | None = None,
  default: Candidate | None = None,
  fastest: Candidate | None = None,
  known: MutableMapping[str, Candidate] | None = None,
  steps: Steps | None = None,
) -> Candidate | Refused:
  """Schedules a target with a config and searches its NCCL settings.

  Args:
    config: the config.
    target: what XLA schedules with it.
    without_plugin: what a job without the tuner plugin sets; None if the job
      loads the plugin.
    default: the candidate to compare with. A config is refused if its schedule
      has a loop of unknown length that the default lacks: such a loop counts
      once, so the schedule's time is unknown. NCCL settings are not searched
      for options that are slower than the default under NCCL's own choices, as
      those are never kept (`Search.best`).
    fastest: compared with instead of `default`. If the schedule alone is
      slower, it is not compiled fully either: rematerialization only adds time.
    known: candidates by their `looks`. A config that looks like one of them
      reuses its result; others are added.
    steps: known steps of the target, if any.
  """
  try:
    step = steps(config) if steps else scheduled_step(target, config)
    module = step.analysis.module
    like = "" if known is None else looks(module, config)
    alike = None if known is None else known.get(like)
    step = alike.step if alike else step
    slower = _if_slower(
      config,
      step,
      step,
      target=target,
      without_plugin=without_plugin,
      than=fastest,
    )
    if slower is not None:
      return slower
    run = run_of(target, config, step)
  except (
    errors.CompileError,
    errors.CombineError,
    errors.ProgramError,
    errors.ScheduleError,
  ) as error:
    return Refused(config=config, reason=str(error))
  least_bytes = None if default is None else default.peak_bytes
  if reason := too_large(target, run.peak_bytes, least_bytes):
    return Refused(config=config, reason=reason, is_too_large=True)
  if reason := _unknown(module, default):
    return Refused(config=config, reason=reason)
  runs = run.step
  if alike is not None and alike.runs is runs:
    outcome = target.outcome(config.program)
    return dataclasses.replace(
      alike, config=config, num_trials=0, outcome=outcome
    )
  rival = fastest or default
  judged = _if_slower(
    config, step, runs, target=target, without_plugin=without_plugin, than=rival
  )
  if judged is None:
    judged = searched(
      config, step, runs, target=target, without_plugin=without_plugin
    )
  judged = dataclasses.replace(judged, peak_bytes=run.peak_bytes)
  if known is not None:
    known.setdefault(like, judged)
  return judged


def _unknown(module: hlo.Module, default: Candidate | None) -> str:
  """Why the time of a schedule is unknown; "" if it is known."""
  if default is None:
    return ""
  name = new_unknown_loop(module, default.step.analysis.module)
  if name is None:
    return ""
  return (
    f"Its time is unknown: the schedule does not say how often its loop {name}"
    " runs."
  )


def looks(module: hlo.Module, config: config_lib.XlaConfig) -> str:
  """Equal for configs that make the same step and run it in the same way."""
  beside = nccl_channels.most(config.options), knobs.num_streams(config.options)
  off = sorted(xla_kernel_options.off(config.options))
  by = asked(config.options)
  return f"{digest.of(module.proto)} {beside} {off} {by}"


def too_large(
  target: target_lib.Target, peak_bytes: int | None, least_bytes: int | None
) -> str:
  """Why a step does not fit on the device; "" if it may fit.

  Args:
    target: what is compiled.
    peak_bytes: peak memory of the step; None if unknown.
    least_bytes: peak memory by default, which never counts as too much.
  """
  device_bytes = target.cluster.gpu.hbm_bytes
  most_bytes = max(memory_pool.num_bytes(device_bytes), least_bytes or 0)
  if peak_bytes is None or peak_bytes <= most_bytes:
    return ""
  return (
    f"It needs {in_words.gigabytes(peak_bytes)} of"
    f" {memory_pool.of_a_gpu(device_bytes)}."
  )


def _if_slower(
  config: config_lib.XlaConfig,
  step: step_lib.Step,
  runs: step_lib.Step,
  *,
  target: target_lib.Target,
  without_plugin: channel_cap.WithoutPlugin | None = None,
  than: Candidate | None,
) -> Candidate | None:
  """The candidate under NCCL's own choices, if these rule it out.

  They do if it is slower under them. With a cap, it must be slower even if
  collectives did not slow kernels, which is all that a cap can gain. They never
  rule out configs that need lagom_xla in the process.
  """
  if than is None or config.needs_process:
    return None
  timeline = runs.timeline(runs.default)
  least_us = timeline.step_time_us
  if channel_cap.chooses_cap(without_plugin):
    least_us -= timeline.total_slowdown_us
  if least_us <= than.launched_us:
    return None
  times = uncertainty.times(runs, runs.default)
  return Candidate(
    config=config,
    step=step,
    runs=runs,
    settings={**step.default, **runs.default},
    under_nccl_defaults=timeline,
    tuned=timeline,
    default_times=times,
    tuned_times=times,
    num_trials=0,
    outcome=target.outcome(config.program),
    capped=timeline if channel_cap.chooses_cap(without_plugin) else None,
  )


def evaluate_or_raise(
  config: config_lib.XlaConfig,
  *,
  target: target_lib.Target,
  without_plugin: channel_cap.WithoutPlugin | None = None,
) -> Candidate:
  """Like `evaluate`, for a config that the search cannot do without.

  Raises:
    CompileError: XLA refused.
    CombineError: the module cannot have these combine groups.
    ProgramError: the program cannot have this form.
    ScheduleError: the schedule cannot have these orders.
  """
  step = scheduled_step(target, config)
  run = run_of(target, config, step)
  found = searched(
    config, step, run.step, target=target, without_plugin=without_plugin
  )
  return dataclasses.replace(found, peak_bytes=run.peak_bytes)


def searched(
  config: config_lib.XlaConfig,
  step: step_lib.Step,
  runs: step_lib.Step,
  *,
  target: target_lib.Target,
  without_plugin: channel_cap.WithoutPlugin | None = None,
) -> Candidate:
  """The candidate of a config, with the best settings for the step that runs.

  Args:
    config: the config.
    step: the step as scheduled under it.
    runs: the step that runs.
    target: the step's target.
    without_plugin: what a job without the tuner plugin sets; None if the job
      loads the plugin.
  """
  found = settings_lib.search(runs, without_plugin)
  settings = found.configuration
  if runs is not step:  # XLA may have combined what the schedule has apart.
    settings = {**step.default, **settings}
  tuned = runs.timeline(found.configuration)
  return Candidate(
    config=config,
    step=step,
    runs=runs,
    settings=settings,
    under_nccl_defaults=runs.timeline(runs.default),
    tuned=tuned,
    default_times=found.default_times,
    tuned_times=found.tuned_times,
    num_trials=found.num_trials,
    outcome=target.outcome(config.program),
    capped=tuned if channel_cap.chooses_cap(without_plugin) else None,
  )


def from_the_beginning(
  candidate: candidates.Candidate,
  *,
  target: target_lib.Target,
  without_plugin: channel_cap.WithoutPlugin | None = None,
  compiled: lowered.Compilation | None = None,
) -> candidates.Candidate:
  """A candidate as compiled from the beginning, with XLA's own names.

  If another step runs then, its NCCL settings are searched again.

  Args:
    candidate: the candidate.
    target: the candidate's target.
    without_plugin: what a job without the tuner plugin sets; None if the job
      loads the plugin.
    compiled: its full compile from the beginning, if done.

  Raises:
    LagomError: XLA does not make that schedule.
  """
  beginning = target.from_the_beginning()
  if beginning is target:
    return candidate
  module = beginning.schedule(candidate.config)
  if module.proto == candidate.step.analysis.module.proto:
    return candidate
  step = of_schedule(module, target, candidate.config)
  runs = _runs(candidate, step, compiled)
  if _digest(runs) != _digest(candidate.runs):
    judged = searched(
      candidate.config, step, runs, target=target, without_plugin=without_plugin
    )
    return dataclasses.replace(judged, peak_bytes=candidate.peak_bytes)
  settings = {key: candidate.settings[key] for key in runs.keys}
  under_nccl_defaults = runs.timeline(runs.default)
  is_searched = candidate.is_searched
  tuned = runs.timeline(settings) if is_searched else under_nccl_defaults
  return dataclasses.replace(
    candidate,
    step=step,
    runs=runs,
    under_nccl_defaults=under_nccl_defaults,
    tuned=tuned,
    default_times=uncertainty.times(runs, runs.default),
    tuned_times=uncertainty.times(runs, settings),
    capped=candidate.capped if candidate.takes_plugin else tuned,
  )


def _runs(
  found: candidates.Candidate,
  step: step_lib.Step,
  compiled: lowered.Compilation | None,
) -> step_lib.Step:
  """The step that runs for a schedule."""
  if compiled is not None:
    return of_compiled(step, compiled.module)
  return step if found.runs is found.step else found.runs


def _digest(step: step_lib.Step) -> str:
  return digest.of(step.analysis.module.proto)
