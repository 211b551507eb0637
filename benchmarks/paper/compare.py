# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A workload under NCCL's default and under each searcher's plan.

All searchers start from NCCL's own choices and see the same predictions.
AutoCCL's plan is what AutoCCL keeps: for each tuning key the setting with which
its collectives are fastest, whatever that does to the kernels. The channel cap
stands beside them, because it is the one plan that reaches sends and receives,
which no tuner of NCCL's does.

Figures that the papers report stand beside ours: Lagom's, arXiv 2602.20656,
section 4, and AutoCCL's, NSDI 2025. Those without a table are known as the
ranges that the text gives. Speedups are over NCCL's default.

Two overlaps of Phi-2 with FSDP on 8 A40s are taken apart by the paper. Pattern
1 is the forward pass: the next layer's all-gather beside a layer. Pattern 2 is
the backward pass: all-gather and reduce-scatter beside a layer. Here they are
the overlaps of that step that run most often, each searched by itself, as the
paper's NCCL can: it tells calls apart, while NCCL's tuner plugin would see one
all-gather of one size in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import dataclasses

from benchmarks.paper import cases
from benchmarks.searchers import autoccl
from lagom_xla.costs import contention
from lagom_xla.costs import lower_bound
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.nccl import lagom
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib
from lagom_xla.search.nccl.balance import Balance

# Lagom's end-to-end speedups, by parallelism.
LAGOM_SPEEDUP = {"fsdp": (1.10, 1.33), "tp": (1.08, 1.16), "ep": (1.07, 1.08)}

# AutoCCL's in the same experiments; with FSDP no range is given.
AUTOCCL_SPEEDUP = {"fsdp": "some below 1", "tp": "1.03–1.09", "ep": "1.03–1.09"}

# Searches of an overlap of two collectives (figure 8c).
LAGOM_TRIALS = 33
AUTOCCL_TRIALS = 16


def _ring(num_channels: int, chunk_kib: int) -> nccl.Setting:
  return nccl.Setting(
    algorithm="ring",
    protocol="simple",
    num_channels=num_channels,
    chunk_bytes=chunk_kib * 1024,
  )


# What NCCL 2.18 runs on 8 A40s, of all-gather and reduce-scatter: with NVLink
# pairs (both papers), over PCIe alone (AutoCCL, table 3).
DEFAULT = {"lagom_a": _ring(8, 2048), "lagom_b": _ring(2, 2048)}

# Pattern 1: one all-gather, bound by computation. AutoCCL's chunk is not given.
PATTERN_1 = {
  "NCCL 2.18": (_ring(8, 2048), 1.00),
  "AutoCCL": (_ring(61, 2048), 0.87),
  "Lagom": (_ring(2, 684), 1.35),
}

# Pattern 2: several collectives; the reduce-scatter is tuned first.
PATTERN_2 = {
  "NCCL 2.18": (_ring(8, 2048), 1.00),
  "Lagom": (_ring(4, 1366), 1.43),
}


Key = step_lib.Key
Configuration = step_lib.Configuration

SEARCHERS: Mapping[str, searcher_lib.Searcher] = {
  "AutoCCL": autoccl.AutoCCL(),
  "Lagom": lagom.Lagom(),
  "balance": Balance(),
}

# The paper's own default is known for these.
_KNOWN_DEFAULTS = ("all-gather", "reduce-scatter", "all-reduce")

# Keys that a row names: those with this share of all communication.
_LEAST_SHARE = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
  """What a searcher found for a step.

  Attributes:
    step_time_us: predicted.
    num_trials: profiled configurations, summed over the step's problems.
    configuration: a setting for each key.
  """

  step_time_us: float
  num_trials: int
  configuration: Configuration


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Row:
  """A workload with its plans.

  Attributes:
    case: the workload.
    default_us: step time under NCCL's choices as the cost model has them.
    default: those choices.
    paper_default_us: step time under NCCL's choices as the paper has them.
    plans: by searcher.
    cap_us: step time under the best channel cap.
    bound_us: no tuning can beat it (costs/lower_bound.py).
    kernel_us: kernels alone, by default.
    collective_us: collectives alone, by default.
    fastest_us: collectives alone, under AutoCCL's plan.
    exposed_us: waits for collectives, by default.
    slowdown_us: what kernels lose to collectives, by default.
    copies_us: waits for copies, and what kernels lose to them, by default.
    times_us: lone time of each key's collectives per step, by default.
  """

  case: cases.Case
  default_us: float
  default: Configuration
  paper_default_us: float
  plans: Mapping[str, Plan]
  cap_us: float
  bound_us: float
  kernel_us: float
  collective_us: float
  fastest_us: float
  exposed_us: float
  slowdown_us: float
  copies_us: float
  times_us: Mapping[Key, float]

  def speedup(self, step_time_us: float) -> float:
    """Over the default."""
    return self.default_us / step_time_us

  @property
  def main_keys(self) -> tuple[Key, ...]:
    """The keys that take most of the communication, the first most."""
    least_us = _LEAST_SHARE * self.collective_us
    keys = [key for key, us in self.times_us.items() if us >= least_us]
    return tuple(sorted(keys, key=lambda key: -self.times_us[key]))


def compare(case: cases.Case, step: step_lib.Step) -> Row:
  """Searches a workload; `step` is its own."""
  replayed = step.timeline(step.default)
  plans = {name: search(name, step) for name in SEARCHERS}
  return Row(
    case=case,
    default_us=replayed.step_time_us,
    default=step.default,
    paper_default_us=step.timeline(_paper_default(step, case)).step_time_us,
    plans=plans,
    cap_us=channel_cap.best(step).step_time_us,
    bound_us=lower_bound.us(step),
    kernel_us=replayed.kernel_us,
    collective_us=replayed.collective_us,
    fastest_us=sum(_alone_us(step, plans["AutoCCL"].configuration).values()),
    exposed_us=sum(replayed.exposed_us.values()),
    slowdown_us=replayed.total_slowdown_us,
    copies_us=replayed.total_copy_wait_us + replayed.total_copy_slowdown_us,
    times_us=_alone_us(step, step.default),
  )


def _alone_us(
  step: step_lib.Step, configuration: Configuration
) -> dict[Key, float]:
  return {
    key: step.executions[key] * step.predict(key, setting).time_us
    for key, setting in configuration.items()
  }


def search(name: str, step: step_lib.Step) -> Plan:
  """One searcher's plan for a step, from NCCL's defaults."""
  configuration = dict(step.default)
  num_trials = 0
  for problem in problem_lib.problems(step):
    found, trials = search_problem(name, step, problem)
    configuration.update(found)
    num_trials += trials
  return Plan(
    step_time_us=step.timeline(configuration).step_time_us,
    num_trials=num_trials,
    configuration=configuration,
  )


def search_problem(
  name: str, step: step_lib.Step, problem: problem_lib.Problem
) -> tuple[Configuration, int]:
  """What a searcher keeps for a problem, and the trials that it took."""
  searcher = SEARCHERS[name]
  state = searcher_lib.run(
    searcher,
    problem,
    step.cluster,
    start=step.default,
    profile=problem_lib.Predictor(step, problem),
  )
  if isinstance(searcher, autoccl.AutoCCL):
    return searcher.fastest(state), state.num_trials
  return searcher.best(state), state.num_trials


def _paper_default(step: step_lib.Step, case: cases.Case) -> Configuration:
  setting = DEFAULT[case.cluster]
  return {
    key: setting if key.kind in _KNOWN_DEFAULTS else default
    for key, default in step.default.items()
  }


WORKLOAD = "phi-2/fsdp/8/a"

_OURS = "NCCL, by our model"
_KINDS = {"1": ("all-gather",), "2": ("all-gather", "reduce-scatter")}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Line:
  """A pattern under one configuration.

  Attributes:
    pattern: "1" or "2".
    who: whose settings.
    settings: by kind of collective.
    overlap_us: predicted time of the overlap.
    speedup: predicted, over the paper's default.
    reported: the paper's, if it has one.
    num_trials: of the search, if there was one.
    kernel_us: kernels of the overlap alone.
    memory_us: the part of it that their traffic takes.
    collective_us: collectives alone.
    slowdown_us: what kernels lost.
    num_waves: waves of all kernels under the settings' most channels, over
      their waves alone.
  """

  pattern: str
  who: str
  settings: Mapping[str, nccl.Setting]
  overlap_us: float
  speedup: float
  reported: float | None
  num_trials: int | None
  kernel_us: float
  memory_us: float
  collective_us: float
  slowdown_us: float
  num_waves: float


def lines(step: step_lib.Step) -> Iterator[Line]:
  """Both patterns of a step of WORKLOAD, or of one like it."""
  for pattern, kinds in _KINDS.items():
    problem = _problem(step, kinds)
    if problem is not None:
      yield from _pattern_lines(step, pattern, problem)


def _problem(
  step: step_lib.Step, kinds: tuple[str, ...]
) -> problem_lib.Problem | None:
  """The overlap of these kinds that runs most often, by itself."""
  found = [
    overlap
    for overlap in step.analysis.overlaps
    if sorted(c.kind for c in overlap.collectives) == sorted(kinds)
  ]
  if not found:
    return None
  overlap = max(found, key=lambda overlap: overlap.executions)
  keys = frozenset(step.key_of[c.name] for c in overlap.collectives)
  program = program_lib.of_overlap(step.analysis, overlap)
  return problem_lib.Problem(
    keys=tuple(sorted(keys)), programs=((program, 1),), program_keys=(keys,)
  )


def _pattern_lines(
  step: step_lib.Step, pattern: str, problem: problem_lib.Problem
) -> Iterator[Line]:
  default = {key: step.default[key] for key in problem.keys}
  paper_default = dict.fromkeys(problem.keys, DEFAULT["lagom_a"])
  configurations: dict[
    str, tuple[step_lib.Configuration, float | None, int | None]
  ] = {_OURS: (default, None, None)}
  for who, (settings, speedup) in _reported(problem)[pattern].items():
    configurations[f"{who}, as reported"] = (settings, speedup, None)
  for name in SEARCHERS:
    found, trials = search_problem(name, step, problem)
    configurations[f"{name}, searched here"] = (found, None, trials)
  base_us = _replay(step, problem, paper_default).step_time_us
  for who, (configuration, speedup, trials) in configurations.items():
    replayed = _replay(step, problem, configuration)
    yield Line(
      pattern=pattern,
      who=who,
      settings={key.kind: configuration[key] for key in problem.keys},
      overlap_us=replayed.step_time_us,
      speedup=base_us / replayed.step_time_us,
      reported=speedup,
      num_trials=trials,
      kernel_us=replayed.kernel_us,
      memory_us=_memory_us(step, problem),
      collective_us=replayed.collective_us,
      slowdown_us=replayed.total_slowdown_us,
      num_waves=_wave_ratio(step, problem, configuration),
    )


def _reported(
  problem: problem_lib.Problem,
) -> dict[str, dict[str, tuple[step_lib.Configuration, float]]]:
  first: dict[str, tuple[step_lib.Configuration, float]] = {
    who: (dict.fromkeys(problem.keys, setting), speedup)
    for who, (setting, speedup) in PATTERN_1.items()
  }
  # Only the reduce-scatter's new setting is reported.
  default = PATTERN_2["NCCL 2.18"][0]
  second: dict[str, tuple[step_lib.Configuration, float]] = {
    who: (
      {
        key: setting if key.kind == "reduce-scatter" else default
        for key in problem.keys
      },
      speedup,
    )
    for who, (setting, speedup) in PATTERN_2.items()
  }
  return {"1": first, "2": second}


def _replay(
  step: step_lib.Step,
  problem: problem_lib.Problem,
  configuration: step_lib.Configuration,
) -> timeline.Timeline:
  ((program, _),) = problem.programs
  # Other keys are not in the program.
  return timeline.replay(program, step.costs({**step.default, **configuration}))


def _kernels(program: program_lib.Program) -> Iterator[kernels_lib.Kernel]:
  for part in program:
    match part:
      case program_lib.Launch(kernel):
        yield kernel
      case program_lib.Loop(body, _):
        yield from _kernels(body)


def _memory_us(step: step_lib.Step, problem: problem_lib.Problem) -> float:
  ((program, _),) = problem.programs
  return sum(step.kernel_cost(k).memory_us for k in _kernels(program))


def _wave_ratio(
  step: step_lib.Step,
  problem: problem_lib.Problem,
  configuration: step_lib.Configuration,
) -> float:
  ((program, _),) = problem.programs
  gpu = step.cluster.gpu
  most = max(setting.num_channels for setting in configuration.values())
  costs = [step.kernel_cost(kernel) for kernel in _kernels(program)]
  alone, beside = (
    sum(
      cost.time_us
      / contention.num_waves(cost, gpu, 0)
      * contention.num_waves(cost, gpu, taken)
      for cost in costs
    )
    for taken in (0, most)
  )
  return beside / alone
