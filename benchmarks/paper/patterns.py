# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The two overlaps of Phi-2 with FSDP on 8 A40s that the paper takes apart.

Pattern 1 is the forward pass: the next layer's all-gather beside a layer.
Pattern 2 is the backward pass: all-gather and reduce-scatter beside a layer.
Here they are the overlaps of that step that run most often, each searched by
itself, as the paper's NCCL can: it tells calls apart, while NCCL's tuner plugin
would see one all-gather of one size in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import dataclasses

from benchmarks.paper import compare
from benchmarks.paper import reported
from lagom_xla.costs import contention
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.search.nccl import problem as problem_lib

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
  paper_default = dict.fromkeys(problem.keys, reported.DEFAULT["lagom_a"])
  configurations: dict[
    str, tuple[step_lib.Configuration, float | None, int | None]
  ] = {_OURS: (default, None, None)}
  for who, (settings, speedup) in _reported(problem)[pattern].items():
    configurations[f"{who}, as reported"] = (settings, speedup, None)
  for name in compare.SEARCHERS:
    found, trials = compare.search_problem(name, step, problem)
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
    for who, (setting, speedup) in reported.PATTERN_1.items()
  }
  # Only the reduce-scatter's new setting is reported.
  default = reported.PATTERN_2["NCCL 2.18"][0]
  second: dict[str, tuple[step_lib.Configuration, float]] = {
    who: (
      {
        key: setting if key.kind == "reduce-scatter" else default
        for key in problem.keys
      },
      speedup,
    )
    for who, (setting, speedup) in reported.PATTERN_2.items()
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
