# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Groups of all-reduces: those that are ready at about the same time.

A collective starts when its last array is ready, so that neighbours in time
belong together, up to a size. Which those are is told by the longest chain of
products before each: in a backward pass that is the layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lagom_xla.passes import combine
from lagom_xla.passes import hlo
from lagom_xla.passes.combine import combinable
from lagom_xla.passes.combine import rule
from lagom_xla.passes.combine import split
from lagom_xla.passes.schedule import behind_products

_KIND = "all-reduce"


def all_reduces(module: hlo.Module) -> list[combinable.Candidate]:
  """The all-reduces of a module, each of one array, first ready ones first.

  Args:
    module: as PRE_SCHEDULER shows it.
  """
  apart = split.apart(module)
  depth = _multiplications_before(apart)
  found = combinable.find(apart, as_written=True).values()
  reduced = [candidate for candidate in found if candidate.kind == _KIND]
  return sorted(
    reduced, key=lambda one: (one.computation_id, depth[one.instruction.id])
  )


def groups(
  candidates: Iterable[combinable.Candidate], group_bytes: int
) -> combine.Groups:
  """Groups of all-reduces up to a size; those of one are left out.

  Args:
    candidates: of `all_reduces`.
    group_bytes: the most that a group has.
  """
  open_groups: dict[rule.Traits, list[combinable.Candidate]] = {}
  closed: list[list[combinable.Candidate]] = []
  for candidate in candidates:
    group = open_groups.setdefault(candidate.traits, [])
    num_bytes = sum(member.num_bytes for member in group)
    is_after = any(candidate.after & member.bit for member in group)
    if is_after or num_bytes + candidate.num_bytes > group_bytes:
      closed.append(group)
      group = open_groups[candidate.traits] = []
    group.append(candidate)
  return tuple(
    tuple(member.label for member in group)
    for group in (*closed, *open_groups.values())
    if len(group) > 1
  )


def _multiplications_before(module: hlo.Module) -> Mapping[int, int]:
  """The longest chain of products up to each instruction that runs."""
  depth: dict[int, int] = {}
  for computation_id in module.executions:
    computation = module.computations[computation_id]
    for instruction in computation.instructions:
      before = (depth[id_] for id_ in instruction.operand_ids)
      depth[instruction.id] = max(
        before, default=0
      ) + behind_products.num_multiplications(module, computation, instruction)
  return depth
