# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Results about steps, as commands print them with --format=json.

The dataclasses `Inspection`, `Tuning` and `Verification` define JSON schemas.
Their docstrings are the descriptions in docs/formats.md. Other programs rely on
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import dataclasses
from typing import TypedDict

from lagom_xla import plan as plan_lib
from lagom_xla import validation
from lagom_xla.costs import routes
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.costs.nccl import environment as nccl_environment
from lagom_xla.costs.replay import timeline as timeline_lib
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.flags import environment
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import combine
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.passes import provenance
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.schedule import memory
from lagom_xla.profiling import costing as costing_lib
from lagom_xla.report import instructions
from lagom_xla.report import profile_results
from lagom_xla.report import settings
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.tuner import tuning as tuning_lib
from lagom_xla.verify import effects as effects_lib
from lagom_xla.verify import verification as verification_lib


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
  """The kernels that may run beside a collective.

  Attributes:
    num_kernels: kernels between its start and its done.
    num_gemms: matrix products among them.
  """

  num_kernels: int
  num_gemms: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
  """A collective of the schedule.

  Attributes:
    name: the instruction that starts it, unique in the module.
    kind: HLO opcode: `all-gather`, `all-reduce`, `reduce-scatter`,
      `all-to-all`, `collective-permute`, `collective-broadcast`,
      `ragged-all-to-all`, `send`, `recv`.
    form: `async` if kernels may run beside it, else `sync`.
    stream: `communication`, which runs collectives one after another;
      `communication, scale-up`, the same for collectives within an NVLink
      domain if XLA gives them their own stream; or `communication, sync`, which
      is the compute stream.
    computation: the computation that contains it.
    num_operands: number of arrays combined in it.
    moves: a description of each array.
    operand_bytes: input bytes per device and execution.
    result_bytes: output bytes per device and execution.
    group_size: devices in its largest group; 0 if unknown.
    num_groups: groups that run it at the same time.
    spans_nodes: whether a group spans more than one node of the cluster.
    executions: number of runs per step.
    overlap: the kernels that may run beside it.
    run_by: `NCCL` if NCCL settings affect it; else what runs it instead.
    num_sms: SMs that it takes, with NCCL's own choice if NCCL runs it.
    source: its source line and layer, as in
      `train.py:88, layer_0/attention (backward)`; "" if unknown.
    source_file: full path of the source file; None if unknown.
    source_line: line number in that file; None if unknown.
  """

  name: str
  kind: str
  form: collectives_lib.Form
  stream: str
  computation: str
  num_operands: int
  moves: tuple[provenance.Array, ...]
  operand_bytes: int
  result_bytes: int
  group_size: int
  num_groups: int
  spans_nodes: bool
  executions: int
  overlap: Beside
  run_by: routes.RunBy
  num_sms: int
  source: str
  source_file: str | None
  source_line: int | None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Total:
  """The data that a device moves per step in collectives of one kind.

  Attributes:
    num_instructions: entries of `collectives`.
    num_executions: the sum of their `executions`.
    operand_bytes: the sum of `executions` times `operand_bytes`.
    result_bytes: the sum of `executions` times `result_bytes`.
  """

  num_instructions: int
  num_executions: int
  operand_bytes: int
  result_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
  """A maximal chain of async collectives whose windows intersect.

  Attributes:
    collectives: their names, in the order of their starts; never empty.
    kernels: the kernels inside, in schedule order; empty if nothing hides the
      collectives.
    executions: number of runs per step.
  """

  collectives: tuple[str, ...]
  kernels: tuple[str, ...]
  executions: int


def _collectives(step: step_lib.Step) -> Iterator[Collective]:
  told = instructions.of_step(step)
  for found in step.analysis.collectives:
    line = told[found.name].source
    frame = line.frames[0] if line.frames else None
    beside = step.analysis.kernels_beside[found.start_id]
    yield validation.convert(
      Collective,
      found,
      moves=provenance.of(step.analysis.module).moved(found),
      spans_nodes=any(
        step.cluster.num_nodes_of(group) > 1 for group in found.groups
      ),
      overlap=Beside(
        num_kernels=len(beside),
        num_gemms=sum(kernel.category == "gemm" for kernel in beside),
      ),
      run_by=step.run_by(found),
      num_sms=step.num_sms(found),
      source=str(line),
      source_file=frame.file if frame else None,
      source_line=frame.line if frame else None,
    )


def totals(analysis: overlap_lib.Analysis) -> dict[str, Total]:
  """Kind of collective -> data that a device moves per step, in all trips."""
  by_kind: dict[str, list[collectives_lib.Collective]] = {}
  for collective in analysis.collectives:
    by_kind.setdefault(collective.kind, []).append(collective)
  return {
    kind: Total(
      num_instructions=len(alike),
      num_executions=sum(c.executions for c in alike),
      operand_bytes=sum(c.executions * c.operand_bytes for c in alike),
      result_bytes=sum(c.executions * c.result_bytes for c in alike),
    )
    for kind, alike in sorted(by_kind.items())
  }


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Module:
  """The scheduled module of a step.

  Attributes:
    name: name of the HLO module.
    num_instructions: instructions in all computations, including fusions.
    num_partitions: number of devices that it is partitioned for; None if
      unknown.
  """

  name: str
  num_instructions: int
  num_partitions: int | None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class HostCopy:
  """A copy to or from the host's memory.

  Attributes:
    name: the instruction that starts it.
    to_host: whether it copies to the host; else from the host.
    computation: the computation that contains it.
    num_bytes: bytes per device and execution.
    executions: number of runs per step.
  """

  name: str
  to_host: bool
  computation: str
  num_bytes: int
  executions: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
  """The collectives of a step, and the kernels that run beside them.

  Attributes:
    module: the step's scheduled module.
    xla_flags: the `XLA_FLAGS` of its compile, in one line; "" for none.
    compiler_options: other settings that changed its compile, from the
      compiler_options of `jax.jit` and JAX's settings: XLA option or JAX
      setting -> value.
    nccl_variables: NCCL variables that limit NCCL's choices; all times take
      them into account.
    collectives: all collectives, by computation, in schedule order.
    host_copies: copies to and from the host's memory.
    totals: kind of collective -> data that a device moves per step.
    gemm_flops: FLOPs of matrix products and convolutions per device, two per
      multiply-add.
    overlaps: which kernels run beside which collectives.
    loops_of_unknown_length: loops without a trip count from XLA; their bodies
      count once.
    calls_of_unknown_work: kernel -> its library call; only its bytes are
      costed.
    calls_that_may_communicate: kernel -> its library call, which may contain
      collectives that are not listed here.
    profile: the measured costs that its times use; None without --profile.
    advice: what to change in the program, the largest gain first.
  """

  __pydantic_config__ = validation.STRICT

  module: Module
  xla_flags: str
  compiler_options: Mapping[str, bool | int | float | str]
  nccl_variables: Mapping[str, str]
  collectives: tuple[Collective, ...]
  host_copies: tuple[HostCopy, ...]
  totals: Mapping[str, Total]
  gemm_flops: int
  overlaps: tuple[Overlap, ...]
  loops_of_unknown_length: tuple[str, ...]
  calls_of_unknown_work: Mapping[str, str]
  calls_that_may_communicate: Mapping[str, str]
  profile: profile_results.MeasuredCosts | None
  advice: tuple[explanation_lib.Advice, ...]


def inspection(
  step: step_lib.Step,
  costed: costing_lib.Costing | None = None,
  advice: tuple[explanation_lib.Advice, ...] = (),
) -> Inspection:
  """The inspection of a step, with the profile behind its costs."""
  analysis = step.analysis
  module = analysis.module
  return Inspection(
    module=Module(
      name=module.name,
      num_instructions=module.num_instructions,
      num_partitions=collectives_lib.num_devices(module),
    ),
    xla_flags=environment.xla_flags(),
    compiler_options=environment.found().values,
    nccl_variables=nccl_environment.costed(),
    collectives=tuple(_collectives(step)),
    host_copies=tuple(
      validation.convert(HostCopy, copy) for copy in analysis.host_copies
    ),
    totals=totals(analysis),
    gemm_flops=analysis.gemm_flops,
    overlaps=tuple(
      Overlap(
        collectives=tuple(c.name for c in overlap.collectives),
        kernels=tuple(k.name for k in overlap.kernels),
        executions=overlap.executions,
      )
      for overlap in analysis.overlaps
    ),
    loops_of_unknown_length=tuple(module.loops_of_unknown_length),
    calls_of_unknown_work=step.unknown_calls,
    calls_that_may_communicate=step.calls_that_may_communicate,
    profile=profile_results.measured_costs(step, costed) if costed else None,
    advice=advice,
  )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class LostToCollective:
  """A kernel's loss to a collective beside it.

  Attributes:
    kernel: name of the kernel.
    collective: name of the collective.
    slowdown_us: time per step by which the collective slows the kernel.
  """

  kernel: str
  collective: str
  slowdown_us: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
  """A replayed step; times are predicted, per step.

  Attributes:
    step_time_us: `kernel_us` + `slowdown_us` + `exposed_us` + `copy_wait_us` +
      `copy_slowdown_us`.
    kernel_us: time of kernels, each alone.
    collective_us: time of collectives, each alone.
    exposed_us: time that kernels wait for collectives.
    slowdown_us: time by which collectives slow kernels.
    delay_us: time by which kernels slow collectives.
    copy_us: time of copies beside kernels, each alone: to and from the host's
      memory, and within the GPU's.
    copy_wait_us: time that kernels wait for copies.
    copy_slowdown_us: time by which copies slow kernels.
    exposed_us_by_collective: collective -> its share of `exposed_us`.
    source_by_collective: collective -> its source line, like `source` of
      `inspect`.
    slowdown_us_by_pair: `slowdown_us` by kernel and collective.
  """

  step_time_us: float
  kernel_us: float
  collective_us: float
  exposed_us: float
  slowdown_us: float
  delay_us: float
  copy_us: float
  copy_wait_us: float
  copy_slowdown_us: float
  exposed_us_by_collective: Mapping[str, float]
  source_by_collective: Mapping[str, str]
  slowdown_us_by_pair: tuple[LostToCollective, ...]


def _timeline(replayed: timeline_lib.Timeline, step: step_lib.Step) -> Timeline:
  told = instructions.of_step(step)
  return validation.convert(
    Timeline,
    replayed,
    exposed_us=replayed.total_exposed_us,
    slowdown_us=replayed.total_slowdown_us,
    delay_us=replayed.total_delay_us,
    copy_wait_us=replayed.total_copy_wait_us,
    copy_slowdown_us=replayed.total_copy_slowdown_us,
    exposed_us_by_collective=replayed.exposed_us,
    source_by_collective={
      collective.name: str(told[collective.name].source)
      for collective in step.analysis.collectives
    },
    slowdown_us_by_pair=tuple(
      LostToCollective(
        kernel=kernel, collective=collective, slowdown_us=lost_us
      )
      for (kernel, collective), lost_us in replayed.slowdown_us.items()
    ),
  )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Predicted:
  """The step without and with the plan.

  Attributes:
    before: the step as it runs today: with all defaults, or with `XLA_FLAGS` if
      set.
    after: the step with the whole plan.
    lower_bound_us: step time that neither today's module nor the plan's can
      beat, in any order and with any NCCL settings.
  """

  before: Timeline
  after: Timeline
  lower_bound_us: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class PeakBytes:
  """Device memory at the peak of a step, by XLA's buffer assignment.

  Attributes:
    before: bytes as it runs today; None without a full compile.
    after: bytes with the plan; None without a full compile.
  """

  before: int | None
  after: int | None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Recomputed:
  """Instructions that XLA rematerializes because memory is short.

  If there are any, times are for the compiled module, else for the schedule.

  Attributes:
    before: instructions as the step runs today.
    after: instructions with the plan.
  """

  before: int
  after: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
  """A configuration that you could run without a plan; times are predicted.

  Times are None if it was refused or not tried.

  Attributes:
    name: today's configuration, or a recipe.
    source: source of its publication; "" if unpublished.
    notes: notes on it, in sentences.
    xla_options: XLA option -> value.
    failure: why XLA refused it; None if it did not.
    step_time_us: step time with NCCL's own choices.
    tuned_step_time_us: step time with searched NCCL settings; None also if they
      were not searched, because the step is slower than today's without them.
  """

  name: str
  source: str
  notes: tuple[str, ...]
  xla_options: Mapping[str, bool | int | float | str]
  failure: str | None
  step_time_us: float | None
  tuned_step_time_us: float | None


def arms(search: candidates_lib.Search) -> tuple[Arm, ...]:
  """All arms, today's first."""
  options = environment.options_in_words()
  name = options if environment.is_set() else f"today: {options}"
  today = arms_lib.Arm(name=name, config=search.default.config)
  return tuple(
    Arm(
      name=arm.name,
      source=arm.source,
      notes=tuple(arm.notes),
      xla_options=arm.config.options,
      **_outcome(search.found(arm.config)),
    )
    for arm in (today, *search.arms)
  )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
  """An XLA configuration that was tried; times are predicted.

  Times and gain are None if XLA refused it.

  Attributes:
    program: the form of the program.
    rewrites: the rewrites for it, a sentence each.
    left_alone: parts that were not rewritten, and why.
    xla_options: XLA option -> value.
    combine_groups: labels of the collectives to combine, group by group; None
      leaves combining to XLA.
    has_scheduler_profile: whether XLA schedules by lagom_xla's costs.
    reordered: computations that run in lagom_xla's order.
    failure: why XLA refused it; None if it did not.
    step_time_us: step time with NCCL's own choices.
    tuned_step_time_us: step time with the NCCL settings found, or with those of
      a plan for --flags-only or --env-only; None if they were not searched,
      because the step is slower than today's without them.
    gain_us: gain over today's step.
    obstacle: why it was not kept; "" if it was.
    num_trials: number of NCCL configurations tried with it.
  """

  program: form_lib.Form
  rewrites: tuple[str, ...]
  left_alone: tuple[form_lib.Refusal, ...]
  xla_options: Mapping[str, bool | int | float | str]
  combine_groups: combine.Groups | None
  has_scheduler_profile: bool
  reordered: tuple[str, ...]
  failure: str | None
  step_time_us: float | None
  tuned_step_time_us: float | None
  gain_us: plan_lib.Range | None
  obstacle: str
  num_trials: int

  @property
  def verdict(self) -> str:
    """Why it was not kept; "kept" if it was."""
    if self.failure is not None:
      return settings.refusal(self.failure, self.program)
    return self.obstacle or "kept"


def candidates(search: candidates_lib.Search) -> tuple[Candidate, ...]:
  """All candidates, today's first."""
  return tuple(
    _candidate(found, search) for found in (search.default, *search.others)
  )


def _candidate(
  found: candidates_lib.Candidate | candidates_lib.Refused,
  search: candidates_lib.Search,
) -> Candidate:
  taken = found if isinstance(found, candidates_lib.Candidate) else None
  config, gain_us = found.config, None
  if taken is not None:
    gain = uncertainty.gain(search.default.default_times, taken.tuned_times)
    gain_us = plan_lib.Range(low_us=gain.low, high_us=gain.high)
  return Candidate(
    program=config.program,
    rewrites=tuple(taken.outcome.actions) if taken else (),
    left_alone=tuple(taken.outcome.refusals) if taken else (),
    xla_options=config.options,
    combine_groups=config.combine_groups,
    has_scheduler_profile=config.scheduler_profile is not None,
    reordered=tuple(sorted(config.orders)),
    gain_us=gain_us,
    obstacle=search.obstacle(taken) if taken else "refused",
    num_trials=taken.num_trials if taken else 0,
    **_outcome(found),
  )


class _Outcome(TypedDict):
  failure: str | None
  step_time_us: float | None
  tuned_step_time_us: float | None


def _outcome(
  found: candidates_lib.Candidate | candidates_lib.Refused | None,
) -> _Outcome:
  """The fields that an arm and a candidate share."""
  if not isinstance(found, candidates_lib.Candidate):
    failure = found.reason if found else None
    return _Outcome(failure=failure, step_time_us=None, tuned_step_time_us=None)
  tuned_us = found.tuned.step_time_us if found.is_searched else None
  return _Outcome(
    failure=None,
    step_time_us=found.under_nccl_defaults.step_time_us,
    tuned_step_time_us=tuned_us,
  )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
  """A plan, its predicted gain, and all candidates.

  Attributes:
    plan: the contents of `plan.json`; its `xla_flags` are today's `XLA_FLAGS`.
    predicted: the step without and with the plan.
    peak_bytes: peak memory without and with the plan.
    effects: the effect of each part of the plan.
    arms: configurations that you could run without a plan, today's first.
    candidates: all XLA configurations tried, today's first.
    recomputed: instructions that XLA rematerializes.
    num_trials: number of NCCL configurations tried, over all candidates.
    stopped: what stopped the search early (`Ctrl-C`, `SIGTERM`, `the time
      budget of 120 s`); None if nothing did. After a stop, nothing was compiled
      fully: `peak_bytes` has None, and `effects` is empty.
    profile: the measured costs that its times use; None without --profile.
    advice: what to change in the program, the largest gain first.
  """

  __pydantic_config__ = validation.STRICT

  plan: plan_lib.Plan
  predicted: Predicted
  peak_bytes: PeakBytes
  effects: tuple[effects_lib.Effect, ...]
  arms: tuple[Arm, ...]
  candidates: tuple[Candidate, ...]
  recomputed: Recomputed
  num_trials: int
  stopped: str | None
  profile: profile_results.MeasuredCosts | None
  advice: tuple[explanation_lib.Advice, ...]


def tuning(
  tuned: tuning_lib.Tuning, costed: costing_lib.Costing | None = None
) -> Tuning:
  """The result of a tuning, with the profile behind its costs."""
  before, kept = tuned.before, tuned.kept
  return Tuning(
    plan=tuned.plan,
    predicted=Predicted(
      before=_timeline(tuned.timeline_before, before),
      after=_timeline(tuned.timeline_after, kept.runs),
      lower_bound_us=tuned.lower_bound_us,
    ),
    peak_bytes=PeakBytes(
      before=tuned.peak_bytes_before, after=tuned.peak_bytes_after
    ),
    effects=tuned.effects,
    arms=arms(tuned.search),
    candidates=candidates(tuned.search),
    recomputed=Recomputed(
      before=len(memory.recomputed(before.analysis.module)),
      after=len(memory.recomputed(kept.runs.analysis.module)),
    ),
    num_trials=tuned.num_trials,
    stopped=tuned.stopped.reason if tuned.stopped else None,
    profile=profile_results.measured_costs(before, costed) if costed else None,
    advice=tuned.advice,
  )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
  """The effect of a plan on a step.

  Attributes:
    module_name: name of the HLO module.
    cluster: name of the cluster.
    xla_flags: the current `XLA_FLAGS`, in one line; "" for none.
    default_us: predicted step time without the plan, with this compile.
    planned_us: predicted step time with the whole plan.
    default_range_us: range of the step time without the plan.
    gain_us: range of the whole plan's gain with this compile.
    too_large: the memory of the step with the plan, if it is too much for a GPU
      and more than without the plan; else "".
    effects: the effect of each part of the plan.
    differs_in_env: names of XLA flags and variables that the env.sh beside the
      plan does not set as the plan does.
  """

  __pydantic_config__ = validation.STRICT

  module_name: str
  cluster: str
  xla_flags: str
  default_us: float
  planned_us: float
  default_range_us: plan_lib.Range
  gain_us: plan_lib.Range
  too_large: str
  effects: tuple[effects_lib.Effect, ...]
  differs_in_env: tuple[str, ...]


def verification(verified: verification_lib.Verification) -> Verification:
  """The result of verifying a plan."""
  plan = verified.plan
  return validation.convert(
    Verification,
    verified,
    module_name=plan.module_name,
    cluster=plan.cluster.name,
    xla_flags=environment.xla_flags(),
  )
