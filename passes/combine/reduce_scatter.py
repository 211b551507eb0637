# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""All-reduces of which each device keeps its own shard only.

XLA's partitioner writes the reduction of a sharded gradient as an all-reduce
and a `dynamic-slice` that takes the device's shard. Between PRE_SCHEDULER and
the combiners XLA turns the two into a reduce-scatter, where the shard is the
one that a reduce-scatter would give:

    sum = f32[512,64] all-reduce(gradient)
    id = partition-id()                                  [all of this can be
    offset = multiply(id, 64)                             other arithmetic]
    shard = f32[64,64] dynamic-slice(sum, offset, 0)
 →  shard = f32[64,64] reduce-scatter(gradient), dimensions={0}

Frontend attributes survive that only from XLA of JAX 0.12 on. Before,
`make_all` does the same earlier, so that an attribute of the reduce-scatter is
there when the combiners look for it.

Reduce-scatters that exist this early are also seen by XLA's reduce-scatter
pipeliner, which is on by default and moves them into the next iteration of
their loop; those that XLA makes come too late for it. To change nothing in a
schedule but the groups, switch the pipeliner off with XLA's option
xla_gpu_enable_pipelined_reduce_scatter. (Two other means do not work: an
optimization barrier after each reduce-scatter stays until after scheduling, and
a control dependence keeps XLA's combiner from combining.)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
import dataclasses

import numpy as np

from lagom_xla.passes import collectives
from lagom_xla.passes import edit
from lagom_xla.passes import hlo
from lagom_xla.passes.combine import per_device


@dataclasses.dataclass(frozen=True, eq=False)
class Pair:
  """An all-reduce and the slice that takes each device's own shard of it.

  Attributes:
    all_reduce: the reduction.
    reshape: what stands between the two, if anything.
    slice: the dynamic-slice.
    dimension: of the slice's operand, along which it is cut.
  """

  all_reduce: hlo.Instruction
  reshape: hlo.Instruction | None
  slice: hlo.Instruction
  dimension: int


def find(computation: hlo.Computation) -> Mapping[int, Pair]:
  """The pairs of a computation, by id of the all-reduce."""
  if not {"all-reduce", "dynamic-slice"} <= computation.opcodes:
    return {}
  users: dict[int, list[hlo.Instruction]] = {}
  for instruction in computation.instructions:
    for operand in set(instruction.operand_ids):
      users.setdefault(operand, []).append(instruction)
  pairs = {}
  for instruction in computation.instructions:
    if instruction.opcode == "all-reduce":
      pair = _match(computation, instruction, users)
      if pair is not None:
        pairs[instruction.id] = pair
  return pairs


def _match(
  computation: hlo.Computation,
  all_reduce: hlo.Instruction,
  users: Mapping[int, list[hlo.Instruction]],
) -> Pair | None:
  if len(all_reduce.operand_ids) != 1 or not all_reduce.use_global_device_ids:
    return None
  reshape = None
  user = _only_user(computation, all_reduce, users)
  if user is not None and user.opcode == "reshape":
    reshape, user = user, _only_user(computation, user, users)
  source = reshape or all_reduce
  if (
    user is None
    or user.opcode != "dynamic-slice"
    or user.operand_ids[0] != source.id
    or source.id in user.operand_ids[1:]
  ):
    return None
  dimension = _shard_dimension(computation, all_reduce, source, user)
  if dimension is None:
    return None
  return Pair(all_reduce, reshape, user, dimension)


def _only_user(
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  users: Mapping[int, list[hlo.Instruction]],
) -> hlo.Instruction | None:
  found = users.get(instruction.id, [])
  is_result = computation.proto.root_id == instruction.id
  return found[0] if len(found) == 1 and not is_result else None


def _shard_dimension(
  computation: hlo.Computation,
  all_reduce: hlo.Instruction,
  source: hlo.Instruction,
  slice_: hlo.Instruction,
) -> int | None:
  """The one dimension that is cut, in the order of the group's devices."""
  sizes = source.shape.dimensions
  cut = [d for d, n in enumerate(slice_.shape.dimensions) if n != sizes[d]]
  if len(cut) != 1:
    return None
  (dimension,) = cut
  groups = collectives.replica_groups_of(all_reduce, None)
  shard = slice_.shape.dimensions[dimension]
  if not groups or any(len(g) * shard != sizes[dimension] for g in groups):
    return None
  index = computation.by_id[slice_.operand_ids[1 + dimension]]
  devices = [device for group in groups for device in group]
  offsets = per_device.scalar(computation, index, devices)
  expected = [rank * shard for group in groups for rank in range(len(group))]
  if offsets is None or not np.array_equal(offsets, expected):
    return None
  return dimension


def make_all(module: hlo.Module) -> None:
  """Puts reduce-scatters in place of all pairs of a module's proto.

  Each keeps the frontend attributes of its all-reduce. Afterwards
  `module.proto` is up to date, and what was read from it before is not.
  """
  editor = edit.Editor(module)
  for computation in module.computations.values():
    pairs = find(computation).values()
    if pairs:
      _make(computation, pairs, editor)


def _make(
  computation: hlo.Computation, pairs: Collection[Pair], editor: edit.Editor
) -> None:
  made: dict[int, hlo.Instruction] = {}
  for pair in pairs:
    reduce_scatter = hlo.Instruction()
    reduce_scatter.CopyFrom(pair.all_reduce)
    reduce_scatter.id = pair.slice.id
    reduce_scatter.name = editor.new_name("reduce-scatter")
    reduce_scatter.opcode = "reduce-scatter"
    reduce_scatter.dimensions.append(pair.dimension)
    reduce_scatter.shape.CopyFrom(pair.slice.shape)
    if pair.reshape is not None:
      pair.reshape.operand_ids[:] = pair.all_reduce.operand_ids
      reduce_scatter.operand_ids[:] = [pair.reshape.id]
    made[reduce_scatter.id] = reduce_scatter
  edit.forward(
    computation,
    [made.get(i.id, i) for i in computation.instructions],
    {pair.all_reduce.id: pair.slice.id for pair in pairs},
  )
