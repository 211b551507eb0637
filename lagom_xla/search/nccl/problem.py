# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Problems of a step: tuning keys that must be chosen together.

Lagom tunes one overlap at a time. But NCCL tells collectives apart only by
communicator, kind and bytes: the same tuning key occurs in many overlaps, such
as those of all layers, and they all get its setting. So overlaps that share a
key, directly or through others, form one *problem*: its unknowns are the keys,
and a trial replays all its overlaps. Overlaps with equal keys and kernels are
replayed once and counted as often as they occur. Collectives that overlap
nothing are included without kernels, so their keys are tuned for speed alone.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator
import dataclasses

from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import incremental
from lagom_xla.costs.replay import program as program_lib

Key = step_lib.Key
Configuration = step_lib.Configuration
Signature = tuple[object, ...]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
  """Tuning keys that must be chosen together.

  Attributes:
    keys: its unknowns, sorted.
    programs: (program of an overlap, executions per step).
    program_keys: the keys of each program's collectives.
    signature: equal for problems whose trials give equal times in every
      scenario, on one cluster and with one profile; () if not needed.
  """

  keys: tuple[Key, ...]
  programs: tuple[tuple[program_lib.Program, int], ...]
  program_keys: tuple[frozenset[Key], ...]
  signature: Signature = ()


def problems(step: step_lib.Step) -> tuple[Problem, ...]:
  """The problems of a step, the largest first."""
  programs: dict[Signature, tuple[program_lib.Program, int]] = {}
  for program, times in _overlap_programs(step):
    signature = _signature(step, program)
    _, before = programs.get(signature, (program, 0))
    programs[signature] = (program, before + times)
  grouped = _connected(
    (_keys_in(step, program), (program, times, signature))
    for signature, (program, times) in programs.items()
  )
  found = [
    Problem(
      keys=tuple(sorted(keys)),
      programs=tuple((program, times) for program, times, _ in members),
      program_keys=tuple(_keys_in(step, program) for program, _, _ in members),
      signature=tuple((signature, times) for _, times, signature in members),
    )
    for keys, members in grouped
  ]
  return tuple(sorted(found, key=lambda p: -len(p.programs)))


def _keys_in(
  step: step_lib.Step, program: program_lib.Program
) -> frozenset[Key]:
  return frozenset(
    step.key_of[c.name] for c, _ in program_lib.collectives_in(program)
  )


def _overlap_programs(
  step: step_lib.Step,
) -> Iterator[tuple[program_lib.Program, int]]:
  """Programs that together run each collective as often as the step does.

  An overlap's program has everything that runs inside it, including overlaps in
  a loop inside it and synchronous collectives.
  """
  covered: collections.Counter[str] = collections.Counter()
  for overlap in step.analysis.overlaps:  # Callers before callees.
    times = overlap.executions - covered[overlap.collectives[0].name]
    if times <= 0:
      continue
    program = program_lib.of_overlap(step.analysis, overlap)
    for collective, repeats in program_lib.collectives_in(program):
      covered[collective.name] += times * repeats
    yield program, times
  for collective in step.analysis.collectives:
    times = collective.executions - covered[collective.name]
    if times > 0:
      yield (program_lib.Start(collective), program_lib.Wait(collective)), times


def _signature(step: step_lib.Step, program: program_lib.Program) -> Signature:
  """Equal for programs with equal replays, under any configuration.

  This holds in any scenario. Products are marked, because scenarios treat them
  differently from other kernels.
  """
  order: dict[str, int] = {}
  signature: list[object] = []
  for part in program:
    match part:
      case program_lib.Launch(kernel):
        is_product = kernel.category == "gemm"
        signature.append((step.kernel_cost(kernel), is_product))
      case program_lib.Start(collective):
        order[collective.name] = len(order)
        key, grouped = step.key_of[collective.name], collective.grouped_bytes
        signature.append(("start", key, sum(grouped)))
      case program_lib.Wait(collective):
        signature.append(("wait", order.get(collective.name)))
      case program_lib.StartCopy(copy):
        order[copy.name] = len(order)
        signature.append(("copy", copy.stream, step.copy_cost(copy)))
      case program_lib.WaitCopy(copy):
        signature.append(("wait", order.get(copy.name)))
      case program_lib.Loop(body, num_trips):
        signature.append((num_trips, _signature(step, body)))
      case program_lib.Branch(branches):
        signature.append(tuple(_signature(step, b) for b in branches))
  return tuple(signature)


_Member = tuple[program_lib.Program, int, Signature]


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


class Predictor:
  """Predicts a problem's time, replaying only programs with changed settings.

  A prediction does not depend on earlier ones.
  """

  def __init__(self, step: step_lib.Step, problem: Problem):
    self._problem = problem
    self._before: Configuration = {}
    self._programs = [
      incremental.IncrementalReplay(
        program, key_of=step.key_of, costs_under=step.costs
      )
      for program, _ in problem.programs
    ]

  def __call__(self, configuration: Configuration) -> float:
    """The time of the problem's programs per step, in microseconds."""
    before = self._before
    changed = {
      key
      for key in self._problem.keys
      if before.get(key) is not configuration[key]
    }
    self._before = configuration
    total_us = 0.0
    for program, keys, (_, times) in zip(
      self._programs,
      self._problem.program_keys,
      self._problem.programs,
      strict=True,
    ):
      if not changed.isdisjoint(keys):
        program.replay(configuration, changed)
      total_us += times * program.step_time_us
    return total_us
