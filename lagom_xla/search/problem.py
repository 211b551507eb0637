# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What is tuned together, and what a trial of it costs.

Lagom tunes one overlap at a time. NCCL, however, tells collectives apart only
by communicator, kind and bytes: the same tuning key occurs in many overlaps
(every layer's, say), and all of them get its setting. So overlaps that share a
key, directly or through others, form one *problem*: its unknowns are the keys,
and a trial runs all its overlaps. Overlaps that are alike in keys and kernels
are replayed once and counted as often as they occur.

Collectives that overlap nothing are part of it with no kernels beside them, so
their keys are tuned for speed alone.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping
import dataclasses

from lagom_xla.costs import step as step_lib
from lagom_xla.costs import timeline
from lagom_xla.passes import collectives as collectives_lib

Key = step_lib.Key
Configuration = step_lib.Configuration


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
  """What one trial of a configuration showed, per step.

  Attributes:
    key_us: x_j, the time of each key's collectives.
    communication_us: X, all collectives.
    computation_us: Y, all kernels, slowed as they are.
    total_us: Z, from the first start to the last done.
  """

  key_us: Mapping[Key, float]
  communication_us: float
  computation_us: float
  total_us: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
  """Tuning keys that must be chosen together.

  Attributes:
    keys: its unknowns, sorted.
    programs: (program of an overlap, times it runs per step).
  """

  keys: tuple[Key, ...]
  programs: tuple[tuple[timeline.Program, int], ...]


def profile(
  step: step_lib.Step, problem: Problem, configuration: Configuration
) -> Profile:
  """Predicts one trial of a problem."""
  costs = step.costs(configuration)
  communication_us = computation_us = total_us = 0.0
  for program, times in problem.programs:
    replayed = timeline.replay(program, costs)
    communication_us += times * replayed.collective_us
    computation_us += times * (replayed.kernel_us + replayed.total_slowdown_us)
    total_us += times * replayed.step_time_us
  return Profile(
    key_us={
      key: step.predict(key, configuration[key]).time_us * step.executions[key]
      for key in problem.keys
    },
    communication_us=communication_us,
    computation_us=computation_us,
    total_us=total_us,
  )


def problems(step: step_lib.Step) -> tuple[Problem, ...]:
  """The problems of a step, the largest first."""
  programs: dict[tuple[object, ...], tuple[timeline.Program, int]] = {}
  for program, times in _overlap_programs(step):
    signature = _signature(step, program)
    _, before = programs.get(signature, (program, 0))
    programs[signature] = (program, before + times)
  grouped = _connected(
    (
      frozenset(step.key_of[c.name] for c, _ in _collectives_in(program)),
      (program, times),
    )
    for program, times in programs.values()
  )
  found = [
    Problem(keys=tuple(sorted(keys)), programs=tuple(members))
    for keys, members in grouped
  ]
  return tuple(sorted(found, key=lambda p: -len(p.programs)))


def _overlap_programs(
  step: step_lib.Step,
) -> Iterator[tuple[timeline.Program, int]]:
  """Programs that together run each collective as often as the step does.

  The program of an overlap holds what runs inside it, so overlaps in a loop
  inside another overlap, and sync collectives, are there already.
  """
  covered: collections.Counter[str] = collections.Counter()
  for overlap in step.analysis.overlaps:  # Callers before callees.
    times = overlap.executions - covered[overlap.collectives[0].name]
    if times <= 0:
      continue
    program = timeline.program_of_overlap(step.analysis, overlap)
    for collective, repeats in _collectives_in(program):
      covered[collective.name] += times * repeats
    yield program, times
  for collective in step.analysis.collectives:
    times = collective.executions - covered[collective.name]
    if times > 0:
      yield (timeline.Start(collective), timeline.Wait(collective)), times


def _signature(
  step: step_lib.Step, program: timeline.Program
) -> tuple[object, ...]:
  """Equal for programs whose replays are equal under any configuration."""
  order: dict[str, int] = {}
  signature: list[object] = []
  for part in program:
    match part:
      case timeline.Launch(kernel):
        signature.append(step.kernel_cost(kernel))
      case timeline.Start(collective):
        order[collective.name] = len(order)
        signature.append(("start", step.key_of[collective.name]))
      case timeline.Wait(collective):
        signature.append(("wait", order.get(collective.name)))
      case timeline.Loop(body, num_trips):
        signature.append((num_trips, _signature(step, body)))
      case timeline.Branch(branches):
        signature.append(tuple(_signature(step, b) for b in branches))
  return tuple(signature)


def _collectives_in(
  program: timeline.Program,
) -> Iterator[tuple[collectives_lib.Collective, int]]:
  """The collectives of a program, with how often it runs each."""
  for part in program:
    match part:
      case timeline.Start(collective):
        yield collective, 1
      case timeline.Loop(body, num_trips):
        for collective, repeats in _collectives_in(body):
          yield collective, num_trips * repeats
      case timeline.Branch(branches):
        for branch in branches:
          yield from _collectives_in(branch)


_Member = tuple[timeline.Program, int]


def _connected(
  items: Iterable[tuple[frozenset[Key], _Member]],
) -> list[tuple[set[Key], list[_Member]]]:
  """Merges items that share keys, directly or through others."""
  groups: list[tuple[set[Key], list[_Member]]] = []
  for keys, member in items:
    touching = [g for g in groups if g[0] & keys]
    apart = [g for g in groups if not g[0] & keys]
    merged_keys = set(keys).union(*(g[0] for g in touching))
    merged = [m for g in touching for m in g[1]] + [member]
    groups = [*apart, (merged_keys, merged)]
  return groups
