# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's combiners: kinds, options and defaults, and what they combine.

Combining makes one collective of several: one launch, one wait, for all of
their arrays. Collectives may be combined when they do the same to different
arrays: their *traits* are equal. They stand in one computation and agree in
kind, devices, and how a reduction reduces, and none depends on another.

XLA goes through a computation in topological order and combines as long as the
traits are equal, none depends on another, and their sum stays within a
threshold in bytes, and one in their count that holds for all kinds; the first
collective for which that fails begins the next group. Collectives above the
threshold stay alone, and a threshold of 0 leaves all of them alone
(xla/service/collective_combiner_utils.h).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
import dataclasses
from typing import Protocol, TypeVar

from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo

# DebugOptions' default of every threshold in bytes: 30 MiB + 7 B
# (xla/debug_options_flags.cc, kDefaultThreshold). Any other value switches off
# XLA's own heuristics.
DEFAULT_BYTES = 31457287

# Collectives that may be combined into one, whatever their kind and size.
COUNT_OPTION = "xla_gpu_collective_combine_threshold_count"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Combiner:
  """XLA's combiner for one kind of collective.

  Attributes:
    option: XLA's option for how many bytes it may combine into one.
    default_bytes: the option's default.
  """

  option: str
  default_bytes: int = DEFAULT_BYTES


# By kind, which is an HLO opcode.
COMBINERS: Mapping[str, Combiner] = {
  "all-gather": Combiner(option="xla_gpu_all_gather_combine_threshold_bytes"),
  "all-reduce": Combiner(option="xla_gpu_all_reduce_combine_threshold_bytes"),
  "collective-permute": Combiner(
    option="xla_gpu_collective_permute_combine_threshold_bytes"
  ),
  "reduce-scatter": Combiner(
    option="xla_gpu_reduce_scatter_combine_threshold_bytes"
  ),
}


def combined_bytes(collective: collectives_lib.Collective) -> int:
  """Bytes of a collective as XLA's combiners count them: what it returns.

  For an all-gather that is what is gathered, for a reduce-scatter what is left
  after scattering, for an all-reduce the tensor
  (xla/service/gpu/gpu_*_combiner.cc).
  """
  return collective.result_bytes


# What all members of a group must agree in, each with its name.
Traits = tuple[tuple[str, Hashable], ...]

# Kinds that reduce: they must also agree in element type and operation.
_REDUCTIONS = frozenset(["all-reduce", "reduce-scatter"])


class Combinable(Protocol):
  """What may be combined: a collective, or one array of it."""

  @property
  def kind(self) -> str:
    """HLO opcode."""

  @property
  def num_bytes(self) -> int:
    """Bytes as XLA's combiners count them (`table.combined_bytes`)."""

  @property
  def traits(self) -> Traits:
    """What it must have in common with what it is combined with."""


_Member = TypeVar("_Member", bound=Combinable)


def traits_of_instruction(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  *,
  kind: str,
) -> Traits:
  """The traits of a collective of one array, before XLA's combiners.

  `kind` is what XLA makes of it before it combines: "reduce-scatter" for some
  all-reduces.
  """
  where, how = _traits(
    kind,
    computation.name,
    groups=collectives_lib.replica_groups_of(instruction, None),
    pairs=collectives_lib.pairs_of(instruction),
    element_type=hlo.element_type(instruction.shape),
    reduction=reduction(module, instruction),
  )
  channel = instruction.channel_id > 0, instruction.use_global_device_ids
  return *where, ("channel", channel), *how


def traits_of_collective(
  collective: collectives_lib.Collective,
  *,
  element_type: str | None = None,
  reduction: str | None = None,
  key: str = "",
) -> Traits:
  """The traits of a collective of a scheduled module.

  A schedule shows less than what the combiners saw: channels are numbered
  anew, and arrays have been turned to the dimension that they are gathered or
  scattered along. It also shows what came after the combiners: a pipelined
  collective is of another iteration than one that is not.

  Args:
    collective: the record.
    element_type: of the array in question where it has several; by default
      that of its first operand.
    reduction: from `reduction`, as a record does not hold it; None leaves it
      out, so that sums and maxima count as alike.
    key: from `keys.program_key`.
  """
  where, how = _traits(
    collective.kind,
    collective.computation,
    groups=collective.groups,
    pairs=collective.pairs,
    element_type=(
      collective.element_type if element_type is None else element_type
    ),
    reduction=reduction,
  )
  pipelining = "pipelining", collective.is_pipelined
  return *where, *how, pipelining, ("combiner key", key)


def _traits(
  kind: str,
  computation: str,
  *,
  groups: Hashable,
  pairs: Hashable,
  element_type: str,
  reduction: str | None,
) -> tuple[Traits, Traits]:
  """Where a collective stands, and what it does."""
  where = ("computation", computation), ("kind", kind)
  if kind == "collective-permute":
    return where, (("pairs of devices", pairs),)
  how: Traits = (("groups of devices", groups),)
  if kind in _REDUCTIONS:
    how += (("element type", element_type),)
    if reduction is not None:
      how += (("reduction", reduction),)
  return where, how


def reduction(module: hlo.Module, operation: hlo.Instruction) -> str:
  """The HLO opcode by which a collective reduces; "" where nothing is reduced.

  A reduction that is not a single operation equals no other, and has the
  collective's name (MatchReductionComputation in
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
  """The first trait that differs, with both values; None where none does."""
  # Those of different kinds have other traits, after the kind.
  for (name, our), (_, their) in zip(ours, theirs, strict=False):
    if our != their:
      return name, our, their
  return None


def fill(
  members: Iterable[_Member],
  thresholds_bytes: Mapping[str, int],
  *,
  depends: Callable[[_Member, Iterable[_Member]], bool],
) -> Iterator[tuple[_Member, ...]]:
  """Groups of one or more as XLA fills them, each as soon as it is full.

  Members are different objects in topological order, thresholds are by their
  kinds, and `depends` says whether a member depends on one of some others,
  through what has been combined so far.
  """
  left = dict.fromkeys(members)
  while left:
    group: list[_Member] = []
    num_bytes = 0
    for member in list(left):
      if group and member.traits != group[0].traits:
        continue
      threshold_bytes = thresholds_bytes[member.kind]
      if member.num_bytes > threshold_bytes or not threshold_bytes:
        del left[member]
        yield (member,)
        continue
      if num_bytes + member.num_bytes > threshold_bytes:
        break
      if depends(member, group):
        break
      group.append(member)
      num_bytes += member.num_bytes
      del left[member]
    if group:
      yield tuple(group)
