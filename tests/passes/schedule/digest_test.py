# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Digests: schedules are alike that run the same kernels beside the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conftest import Scheduled
from lagom_xla.passes import hlo
from lagom_xla.passes import hlo_pb2
from lagom_xla.passes.schedule import digest

_Module = hlo_pb2.HloModuleProto


def test_names_numbers_and_source_lines_do_not_count(
  module: hlo.Module,
) -> None:
  other = _copy(module)
  for computation in other.computations:
    computation.name = f"renamed_{computation.name}"
    for instruction in computation.instructions:
      instruction.name = f"renamed_{instruction.name}"
      instruction.metadata.op_name = "elsewhere"
      instruction.channel_id += bool(instruction.channel_id)
  other.id += 1
  assert digest.of(other) == digest.of(module.proto)


def test_which_kernel_between_two_collectives_comes_first_does_not_count(
  module: hlo.Module,
) -> None:
  other = _with_neighbours_swapped(module, lambda a, b: not (a or b))
  assert other != module.proto
  assert digest.of(other) == digest.of(module.proto)


def test_what_a_kernel_runs_beside_counts(module: hlo.Module) -> None:
  other = _with_neighbours_swapped(module, lambda a, b: a and not b)
  assert digest.of(other) != digest.of(module.proto)


@pytest.mark.parametrize("opcode", ["-start", "fusion"])
def test_what_an_instruction_does_counts(
  module: hlo.Module, opcode: str
) -> None:
  other = _copy(module)
  changed = _running_instruction(other, opcode)
  changed.backend_config = b'{"operation_queue_id": "7"}'
  assert digest.of(other) != digest.of(module.proto)


def test_the_content_of_a_schedule_has_no_order(module: hlo.Module) -> None:
  content = digest.of_content(module.proto)
  moved = _with_neighbours_swapped(module, lambda a, b: a and not b)
  assert digest.of_content(moved) == content
  changed = _copy(module)
  _running_instruction(changed, "fusion").backend_config = b"{}"
  assert digest.of_content(changed) != content


def test_what_is_inside_a_kernel_counts(module: hlo.Module) -> None:
  other = _copy(module)
  by_itself = digest.running_computations(other)
  inside = next(c for c in other.computations if c.id not in by_itself)
  inside.instructions[-1].opcode = "something-else"
  assert digest.of(other) != digest.of(module.proto)


def test_an_option_that_changes_overlaps_makes_another_schedule(
  scheduled: Scheduled, fsdp_step: Callable
) -> None:
  step = fsdp_step()
  default = digest.of(scheduled(step).proto)
  assert digest.of(scheduled(step).proto) == default
  apart = scheduled(step, xla_gpu_all_gather_combine_threshold_bytes=0)
  assert digest.of(apart.proto) != default


@pytest.fixture(params=["fsdp_scan", "fsdp_unrolled", "tp_scan"])
def module(request: pytest.FixtureRequest) -> hlo.Module:
  return request.getfixturevalue(request.param)


def _copy(module: hlo.Module) -> _Module:
  copy = _Module()
  copy.CopyFrom(module.proto)
  return copy


def _running_instruction(
  module: _Module, opcode: str
) -> hlo_pb2.HloInstructionProto:
  """The first whose opcode ends so, and that is no part of a kernel."""
  by_itself = digest.running_computations(module)
  return next(
    instruction
    for computation in module.computations
    if computation.id in by_itself
    for instruction in computation.instructions
    if instruction.opcode.endswith(opcode)
  )


def _with_neighbours_swapped(
  module: hlo.Module, are_wanted: Callable[[bool, bool], bool]
) -> _Module:
  """A module in which the first such two instructions change places.

  Args:
    module: the module.
    are_wanted: given of two of them whether each is a start or a done.
  """
  other = _copy(module)
  by_itself = digest.running_computations(other)
  for computation in other.computations:
    if computation.id not in by_itself:
      continue
    ids = other.schedule.sequences[computation.id].instruction_ids
    opcodes = {i.id: i.opcode for i in computation.instructions}
    for n in range(len(ids) - 1):
      pair = [opcodes[i] for i in ids[n : n + 2]]
      if all(o == "fusion" or _is_async(o) for o in pair) and are_wanted(
        *map(_is_async, pair)
      ):
        ids[n], ids[n + 1] = ids[n + 1], ids[n]
        return other
  raise AssertionError("There are no such neighbours.")


def _is_async(opcode: str) -> bool:
  return opcode.endswith(("-start", "-done"))
