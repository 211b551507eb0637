# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The program of a step: the work that its schedule puts on the GPU's streams.

A program is a tuple of parts in schedule order: kernel launches, starts of
collectives and of copies, waits for them, and the control flow around these.

    program = program_lib.of_module(analysis)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
import dataclasses

from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import copies as copies_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.passes import overlap as overlap_lib


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
  """Puts a kernel on the compute stream."""

  kernel: kernels_lib.Kernel


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
  """Puts a collective on its stream."""

  collective: collectives_lib.Collective


@dataclasses.dataclass(frozen=True, slots=True)
class Wait:
  """Holds the compute stream until a collective is finished."""

  collective: collectives_lib.Collective


@dataclasses.dataclass(frozen=True, slots=True)
class StartCopy:
  """Puts a copy on its stream."""

  copy: copies_lib.Copy


@dataclasses.dataclass(frozen=True, slots=True)
class WaitCopy:
  """Holds the compute stream until a copy is finished."""

  copy: copies_lib.Copy


@dataclasses.dataclass(frozen=True, slots=True)
class Loop:
  """A body that runs `num_trips` times."""

  body: Program
  num_trips: int


@dataclasses.dataclass(frozen=True, slots=True)
class Branch:
  """The branches of a conditional; the slowest counts."""

  branches: tuple[Program, ...]


Part = Launch | Start | Wait | StartCopy | WaitCopy | Loop | Branch
Program = tuple[Part, ...]


def of_module(analysis: overlap_lib.Analysis) -> Program:
  """The schedule of a whole module."""
  return of_instructions(analysis, analysis.module.entry.instructions)


def of_overlap(
  analysis: overlap_lib.Analysis, overlap: overlap_lib.Overlap
) -> Program:
  """The schedule of one overlap, run once.

  Copies that start or end outside of it are left out, because their remaining
  time is unknown.
  """
  computation = analysis.module.computations[overlap.computation_id]
  instructions = computation.instructions[overlap.begin : overlap.end]
  program = of_instructions(analysis, instructions)
  inside = {i.id for i in instructions}
  return tuple(
    part
    for part in program
    if not isinstance(part, StartCopy | WaitCopy)
    or {part.copy.start_id, part.copy.done_id} <= {*inside, None}
  )


def collectives_in(
  program: Program,
) -> Iterator[tuple[collectives_lib.Collective, int]]:
  """The collectives of a program, each with its number of executions."""
  for part in program:
    match part:
      case Start(collective):
        yield collective, 1
      case Loop(body, num_trips):
        for collective, repeats in collectives_in(body):
          yield collective, num_trips * repeats
      case Branch(branches):
        for branch in branches:
          yield from collectives_in(branch)


def of_instructions(
  analysis: overlap_lib.Analysis, instructions: Sequence[hlo.Instruction]
) -> Program:
  """The schedule of a part of a computation, run once."""
  parts: list[Part] = []
  for instruction in instructions:
    started = analysis.started_by.get(instruction.id, ())
    parts.extend(map(Start, started))
    parts.extend(Wait(c) for c in analysis.awaited_by.get(instruction.id, ()))
    if copy := analysis.copies.get(instruction.id):
      parts.append(StartCopy(copy))
      if copy.done_id is None:
        parts.append(WaitCopy(copy))
    elif copy := analysis.awaited_copies.get(instruction.id):
      parts.append(WaitCopy(copy))
    elif instruction.id in analysis.kernels:
      parts.append(Launch(analysis.kernels[instruction.id]))
    else:
      parts.extend(_control_flow(analysis, instruction))
    parts.extend(Wait(c) for c in started if c.form == "sync")
  return tuple(parts)


def _control_flow(
  analysis: overlap_lib.Analysis, instruction: hlo.Instruction
) -> Iterable[Part]:
  callees = [
    (of_instructions(analysis, callee.instructions), repeats)
    for callee, repeats in analysis.callees(instruction)
  ]
  match instruction.opcode:
    case "conditional":
      return [Branch(tuple(branch for branch, _ in callees))]
    case "while":
      (body, num_trips), (condition, asked) = callees
      if not asked:
        return [Loop(body, num_trips)]
      return [Loop((*condition, *body), num_trips), *condition]
  return [part for body, _ in callees for part in body]
