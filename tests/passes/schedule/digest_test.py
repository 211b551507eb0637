# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Digests: schedules are alike that run the same kernels beside the same."""

from __future__ import annotations

import pytest

from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import digest


@pytest.fixture(params=["fsdp_scan", "fsdp_unrolled", "tp_scan"])
def module(request) -> hlo.Module:
  return request.getfixturevalue(request.param)


def _running_instruction(module: hlo.Module, opcode: str) -> hlo.Instruction:
  """The first whose opcode ends so, and that is no part of a kernel."""
  return next(
    instruction
    for computation_id in module.executions
    for instruction in module.computations[computation_id].instructions
    if instruction.opcode.endswith(opcode)
  )


def _with_neighbours_swapped(
  module: hlo.Module, *are_async: bool
) -> hlo.Module:
  """A module in which the first such two instructions change places."""
  other = module.copy()
  for computation_id in module.executions:
    ids = other.proto.schedule.sequences[computation_id].instruction_ids
    by_id = module.computations[computation_id].by_id
    for n in range(len(ids) - 1):
      pair = [by_id[i].opcode for i in ids[n : n + 2]]
      starts = [o.endswith(("-start", "-done")) for o in pair]
      is_fusion = [o == "fusion" for o in pair]
      if starts == list(are_async) and all(map(max, starts, is_fusion)):
        ids[n], ids[n + 1] = ids[n + 1], ids[n]
        return other
  raise AssertionError("There are no such neighbours.")


def test_names_numbers_and_source_lines_do_not_count(module):
  other = module.copy().proto
  for computation in other.computations:
    computation.name = f"renamed_{computation.name}"
    for instruction in computation.instructions:
      instruction.name = f"renamed_{instruction.name}"
      instruction.metadata.op_name = "elsewhere"
      instruction.channel_id += bool(instruction.channel_id)
  other.id += 1
  assert digest.of(other) == digest.of(module.proto)


def test_of_two_neighbours_only_what_a_kernel_runs_beside_counts(module):
  kernels = _with_neighbours_swapped(module, False, False)
  assert kernels.proto != module.proto
  assert digest.of(kernels.proto) == digest.of(module.proto)
  beside = _with_neighbours_swapped(module, True, False).proto
  assert digest.of(beside) != digest.of(module.proto)
  # The content has no order.
  assert digest.of_content(beside) == digest.of_content(module.proto)


@pytest.mark.parametrize("opcode", ["-start", "fusion"])
def test_what_an_instruction_does_counts(module, opcode):
  other = module.copy()
  changed = _running_instruction(other, opcode)
  changed.backend_config = b'{"operation_queue_id": "7"}'
  assert digest.of(other.proto) != digest.of(module.proto)
  assert digest.of_content(other.proto) != digest.of_content(module.proto)


def test_what_is_inside_a_kernel_counts(module):
  other = module.copy()
  inside = other.computations.keys() - other.executions.keys()
  other.computations[inside.pop()].root.opcode = "something-else"
  assert digest.of(other.proto) != digest.of(module.proto)


def test_an_option_that_changes_overlaps_makes_another_schedule(
  scheduled, fsdp_step
):
  step = fsdp_step()
  default = digest.of(scheduled(step).proto)
  assert digest.of(scheduled(step).proto) == default
  apart = scheduled(step, xla_gpu_all_gather_combine_threshold_bytes=0)
  assert digest.of(apart.proto) != default
