# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Collectives in JSON: each of them, their totals, and what overlaps what."""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses

from lagom_xla.costs import step as step_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.report.wording import instructions as instructions_lib


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
  """What may run beside a collective.

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
    computation: where it stands.
    num_operands: arrays that are combined in it.
    operand_bytes: what one device puts in, each time.
    result_bytes: what one device gets out, each time.
    group_size: devices in its largest group; 0 if unknown.
    num_groups: groups that do this at the same time.
    spans_nodes: whether a group reaches over more than one node of the cluster.
    executions: times that it runs per step.
    overlap: what may run beside it.
    source: the line of the program that it comes from, and its layer, as in
      `train.py:88, layer_0/attention (backward)`; "" where XLA was not told.
    source_file: the file of that line, with the whole path; None where XLA was
      not told.
    source_line: its number in that file; None where XLA was not told.
  """

  name: str
  kind: str
  form: collectives_lib.Form
  computation: str
  num_operands: int
  operand_bytes: int
  result_bytes: int
  group_size: int
  num_groups: int
  spans_nodes: bool
  executions: int
  overlap: Beside
  source: str
  source_file: str | None
  source_line: int | None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Total:
  """What a device moves per step in collectives of one kind.

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
    kernels: the instructions inside, in schedule order; empty if nothing hides
      the collectives.
    executions: times that it runs per step.
  """

  collectives: tuple[str, ...]
  kernels: tuple[str, ...]
  executions: int


def of_step(step: step_lib.Step) -> tuple[Collective, ...]:
  """All of a step, one computation after another, in schedule order."""
  return tuple(_collectives(step))


def totals(analysis: overlap_lib.Analysis) -> dict[str, Total]:
  """By kind of collective: what a device moves in a step, loops counted."""
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


def overlaps(analysis: overlap_lib.Analysis) -> tuple[Overlap, ...]:
  """What runs beside what, in schedule order."""
  return tuple(map(_overlap, analysis.overlaps))


def _collectives(step: step_lib.Step) -> Iterator[Collective]:
  told = instructions_lib.of_step(step)
  for found in step.analysis.collectives:
    line = told[found.name].source
    frame = line.frames[0] if line.frames else None
    beside = step.analysis.kernels_beside[found.start_id]
    yield Collective(
      name=found.name,
      kind=found.kind,
      form=found.form,
      computation=found.computation,
      num_operands=found.num_operands,
      operand_bytes=found.operand_bytes,
      result_bytes=found.result_bytes,
      group_size=found.group_size,
      num_groups=found.num_groups,
      spans_nodes=any(
        step.cluster.num_nodes_of(group) > 1 for group in found.groups
      ),
      executions=found.executions,
      overlap=Beside(
        num_kernels=len(beside),
        num_gemms=sum(kernel.category == "gemm" for kernel in beside),
      ),
      source=str(line),
      source_file=frame.file if frame else None,
      source_line=frame.line if frame else None,
    )


def _overlap(overlap: overlap_lib.Overlap) -> Overlap:
  return Overlap(
    collectives=tuple(c.name for c in overlap.collectives),
    kernels=tuple(k.name for k in overlap.kernels),
    executions=overlap.executions,
  )
