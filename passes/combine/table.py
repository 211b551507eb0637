# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's combiners: kinds, options, defaults, and the rule for combining.

A combined collective has one launch and one wait for the arrays of several.
Collectives may be combined if they do the same to different arrays, that is, if
their *traits* are equal (they are in one computation and agree in kind,
devices, and reduction), and none depends on another.

XLA goes through a computation in topological order and combines as long as
traits are equal, no collective depends on another, their bytes stay within the
threshold of their kind, and their number within a threshold for all kinds. The
first collective that breaks this begins the next group. Collectives above the
threshold in bytes are not combined; a threshold of 0 switches combining off
(xla/service/collective_combiner_utils.h).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import replica_groups

# DebugOptions' default of every threshold in bytes: 30 MiB + 7 B
# (xla/debug_options_flags.cc, kDefaultThreshold). Any other value switches off
# XLA's own heuristics.
DEFAULT_BYTES = 31457287

# The most collectives to combine into one, for all kinds and sizes.
COUNT_OPTION = "xla_gpu_collective_combine_threshold_count"


# HLO opcode -> the option for the most bytes that XLA combines into one
# collective of this kind.
COMBINERS: Mapping[str, str] = {
  kind: f"xla_gpu_{kind.replace('-', '_')}_combine_threshold_bytes"
  for kind in (
    "all-gather", "all-reduce", "collective-permute", "reduce-scatter",
  )
}  # fmt: skip


def combined_bytes(collective: collectives_lib.Collective) -> int:
  """Bytes of a collective as XLA's combiners count them: its results.

  For an all-gather that is the gathered array, for a reduce-scatter the
  scattered one, for an all-reduce the tensor
  (xla/service/gpu/gpu_*_combiner.cc).
  """
  return collective.result_bytes


# Properties that all members of a group must share, as (name, value).
Traits = tuple[tuple[str, Hashable], ...]

# Kinds that reduce: they must also agree in element type and operation.
_REDUCTIONS = frozenset(["all-reduce", "reduce-scatter"])


def traits_of_instruction(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  *,
  kind: str,
) -> Traits:
  """The traits of a collective of one array, before XLA's combiners.

  `kind` is its kind when XLA combines: "reduce-scatter" for some all-reduces.
  """
  channel = instruction.channel_id > 0, instruction.use_global_device_ids
  return _traits(
    kind,
    computation.name,
    groups=replica_groups.of(instruction, None),
    pairs=replica_groups.pairs_of(instruction),
    reduced=(
      ("element type", hlo.element_type(instruction.shape)),
      ("reduction", reduction(module, instruction)),
    ),
    seen=("channel", channel),
  )


def traits_of_collective(collective: collectives_lib.Collective) -> Traits:
  """The traits of a collective of a scheduled module.

  A schedule shows less than the combiners saw: channels are renumbered, arrays
  are transposed to the gathered or scattered dimension, and a record lacks the
  reduction. It also includes later changes: a pipelined collective belongs to
  another iteration than one that is not pipelined.
  """
  return _traits(
    collective.kind,
    collective.computation,
    groups=collective.groups,
    pairs=collective.pairs,
    reduced=(("element type", collective.element_type),),
    seen=("pipelining", collective.is_pipelined),
  )


def _traits(
  kind: str,
  computation: str,
  *,
  groups: Hashable,
  pairs: Hashable,
  reduced: Traits,
  seen: tuple[str, Hashable],
) -> Traits:
  where = ("computation", computation), ("kind", kind), seen
  if kind == "collective-permute":
    return *where, ("pairs of devices", pairs)
  how = ("groups of devices", groups)
  return *where, how, *(reduced if kind in _REDUCTIONS else ())


def reduction(module: hlo.Module, operation: hlo.Instruction) -> str:
  """The HLO opcode of a collective's reduction; "" if it does not reduce.

  For a reduction of several operations, this is the collective's name, because
  no other reduction equals it (MatchReductionComputation in
  xla/service/collective_ops_utils.cc).
  """
  for callee_id in operation.called_computation_ids:
    callee = module.computations[callee_id]
    operands = callee.operands(callee.root)
    is_single = len(callee.instructions) == 3 and len(operands) == 2
    return callee.root.opcode if is_single else operation.name
  return ""


def difference(
  ours: Traits, theirs: Traits
) -> tuple[str, Hashable, Hashable] | None:
  """The first trait that differs, with both values; None if all agree."""
  # Different kinds have different traits after the kind.
  for (name, our), (_, their) in zip(ours, theirs, strict=False):
    if our != their:
      return name, our, their
  return None


class _Sized(Protocol):
  @property
  def num_bytes(self) -> int:
    """As XLA's combiners count them."""


_Member = TypeVar("_Member", bound=_Sized)


def fill(
  members: Iterable[_Member], threshold_bytes: int
) -> Iterator[tuple[_Member, ...]]:
  """Groups as XLA fills them from members in order with equal traits."""
  group: list[_Member] = []
  num_bytes = 0
  for member in members:
    if member.num_bytes > threshold_bytes or not threshold_bytes:
      yield (member,)
      continue
    if num_bytes + member.num_bytes > threshold_bytes:
      yield tuple(group)
      group, num_bytes = [], 0
    group.append(member)
    num_bytes += member.num_bytes
  if group:
    yield tuple(group)
