# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Collectives that could be combined, and the possible groups of a module.

They are read from a module before XLA's combiners (PRE_SCHEDULER). The *label*
of each is the name of its instruction, which is the same in every compile of a
module by one version of JAX. Members of a group have equal traits (`table`),
and none depends on another. Nor may two groups wait for each other, as {a, d}
and {b, c} would if b needs a and d needs c.

XLA's combiners only take collectives of one array. Collectives that the program
makes XLA launch in a group cannot be combined.

An all-reduce counts as a reduce-scatter if each device keeps only its own
shard, because XLA makes one of it (`find_pairs`).
"""

from __future__ import annotations

from collections.abc import (
  Callable,
  Hashable,
  Mapping,
  Sequence,
)
import dataclasses
import functools
import graphlib
import math
import operator

import jax
import numpy as np

from lagom_xla import errors
from lagom_xla.passes import dependencies
from lagom_xla.passes import edit
from lagom_xla.passes import hlo
from lagom_xla.passes import replica_groups
from lagom_xla.passes.combine import table

_SAME_VALUE = frozenset(["bitcast", "convert", "copy", "reshape"])

# HLO's division truncates, and its remainder has the dividend's sign; without
# negative numbers, NumPy's are the same.
_BINARY: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
  "add": np.add,
  "divide": np.floor_divide,
  "multiply": np.multiply,
  "remainder": np.remainder,
  "subtract": np.subtract,
}
_TYPES = frozenset(["s32", "s64", "u32", "u64"])
_OF_OPERANDS = _SAME_VALUE | _BINARY.keys() | {"clamp", "dynamic-slice"}


def _scalar_per_device(
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  devices: Sequence[int],
) -> np.ndarray | None:
  """The value of an integer scalar on some devices; None if unknown.

  XLA's partitioner writes one program for all devices, which computes its
  position from `partition-id`: a multiple, a quotient and a remainder on a mesh
  of several axes, or an entry of a constant table. Such a number never changes.
  A number from a parameter, such as a loop's counter, is unknown.
  """
  ids = np.asarray(devices, np.int64)

  @functools.cache
  def value_of(id_: int) -> np.ndarray | None:
    instruction = computation.by_id[id_]
    if hlo.element_type(instruction.shape) not in _TYPES:
      return None
    operands = []
    if instruction.opcode in _OF_OPERANDS:
      for operand in instruction.operand_ids:
        if (value := value_of(operand)) is None:
          return None
        operands.append(value)
    value = _value(instruction, operands, ids)
    if value is None or not value.size:
      return None
    # Inside these bounds no type of _TYPES wraps around.
    return value if 0 <= value.min() and value.max() < 2**31 else None

  value = value_of(instruction.id)
  if value is None or value.size != len(devices):
    return None
  return value.reshape(-1)


def _value(
  instruction: hlo.Instruction,
  operands: Sequence[np.ndarray],
  devices: np.ndarray,
) -> np.ndarray | None:
  """An instruction's value: devices along the first axis, then its shape."""
  shape = (len(devices), *instruction.shape.dimensions)
  match instruction.opcode, operands:
    case "partition-id", _:
      return devices
    case "constant", _:
      literal = instruction.literal
      for values in (literal.s32s, literal.s64s, literal.u32s, literal.u64s):
        if values and len(values) == math.prod(shape[1:]):
          array = np.array(values, np.int64).reshape(shape[1:])
          return np.broadcast_to(array, shape)
    case "divide" | "remainder", [_, divisor] if not divisor.all():
      return None
    case opcode, [value] if opcode in _SAME_VALUE:
      return value.reshape(shape)
    case opcode, [left, right] if opcode in _BINARY:
      return _BINARY[opcode](left, right)
    case "clamp", [low, value, high]:
      return np.clip(value, low, high)
    case "dynamic-slice", [values, start] if values.ndim == 2:
      size = instruction.dynamic_slice_sizes[0]
      # HLO clamps it to the bounds.
      first = np.clip(start.reshape(-1), 0, values.shape[1] - size)
      places = first[:, None] + np.arange(size)
      return np.take_along_axis(values, places, axis=1)
  return None


@dataclasses.dataclass(frozen=True, eq=False)
class Pair:
  """An all-reduce, and the dynamic-slice that takes a device's own shard.

  A reshape may be between the two; `dimension` is the sliced dimension of the
  slice's operand.
  """

  all_reduce: hlo.Instruction
  reshape: hlo.Instruction | None
  slice: hlo.Instruction
  dimension: int


def find_pairs(computation: hlo.Computation) -> Mapping[int, Pair]:
  """The pairs of a computation, by id of the all-reduce.

  XLA's partitioner writes the reduction of a sharded gradient as such a pair.
  Between PRE_SCHEDULER and the combiners, XLA turns the pair into a
  reduce-scatter if that would give the same shard:

      sum = f32[512,64] all-reduce(gradient)
      id = partition-id()                                  [all of this can be
      offset = multiply(id, 64)                             other arithmetic]
      shard = f32[64,64] dynamic-slice(sum, offset, 0)
   →  shard = f32[64,64] reduce-scatter(gradient), dimensions={0}
  """
  if not {"all-reduce", "dynamic-slice"} <= computation.opcodes:
    return {}
  users = dependencies.of(computation).users

  def only_user(instruction: hlo.Instruction) -> hlo.Instruction | None:
    ids = users[instruction.id]
    is_result = computation.proto.root_id == instruction.id
    return (
      computation.by_id[ids[0]] if len(ids) == 1 and not is_result else None
    )

  pairs = {}
  for all_reduce in computation.instructions:
    if (
      all_reduce.opcode != "all-reduce"
      or len(all_reduce.operand_ids) != 1
      or not all_reduce.use_global_device_ids
    ):
      continue
    reshape, user = None, only_user(all_reduce)
    if user is not None and user.opcode == "reshape":
      reshape, user = user, only_user(user)
    source = reshape or all_reduce
    if (
      user is None
      or user.opcode != "dynamic-slice"
      or user.operand_ids[0] != source.id
      or source.id in user.operand_ids[1:]
    ):
      continue
    dimension = _shard_dimension(computation, all_reduce, source, user)
    if dimension is not None:
      pairs[all_reduce.id] = Pair(all_reduce, reshape, user, dimension)
  return pairs


def _shard_dimension(
  computation: hlo.Computation,
  all_reduce: hlo.Instruction,
  source: hlo.Instruction,
  slice_: hlo.Instruction,
) -> int | None:
  """The only sliced dimension, if the group's devices slice it in order."""
  sizes = source.shape.dimensions
  cut = [d for d, n in enumerate(slice_.shape.dimensions) if n != sizes[d]]
  if len(cut) != 1:
    return None
  (dimension,) = cut
  groups = replica_groups.of(all_reduce, None)
  shard = slice_.shape.dimensions[dimension]
  if not groups or any(len(g) * shard != sizes[dimension] for g in groups):
    return None
  index = computation.by_id[slice_.operand_ids[1 + dimension]]
  devices = [device for group in groups for device in group]
  offsets = _scalar_per_device(computation, index, devices)
  expected = [rank * shard for group in groups for rank in range(len(group))]
  if offsets is None or not np.array_equal(offsets, expected):
    return None
  return dimension


def make_all(module: hlo.Module) -> None:
  """Replaces all pairs in a module's proto by reduce-scatters.

  When XLA does this itself, it keeps the all-reduce's frontend attributes only
  from JAX 0.12 on. Done here, each reduce-scatter has them when the combiners
  run. Afterward `module.proto` is up to date, but anything read from it before
  is not.

  XLA's reduce-scatter pipeliner, which is on by default, moves reduce-scatters
  that exist this early into the next iteration of their loop; those that XLA
  makes come too late for it. To change only the groups in a schedule, switch
  the pipeliner off with XLA's option xla_gpu_enable_pipelined_reduce_scatter.
  (Two other ways do not work: an optimization barrier after each reduce-scatter
  stays until after scheduling, and a control dependence keeps XLA's combiner
  from combining.)
  """
  editor = edit.Editor(module)
  for computation in module.computations.values():
    pairs = find_pairs(computation).values()
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
    if made:
      edit.forward(
        computation,
        [made.get(i.id, i) for i in computation.instructions],
        {pair.all_reduce.id: pair.slice.id for pair in pairs},
      )


# Labels that are combined; collectives in no group stay alone.
Groups = tuple[tuple[str, ...], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
  """A collective that could be combined with others.

  Attributes:
    label: the name of its instruction.
    kind: a key of table.COMBINERS; "reduce-scatter" also for an all-reduce that
      XLA turns into one, because each device keeps only a shard.
    computation_id: id of the computation that holds it.
    instruction: the collective itself.
    num_bytes: bytes as XLA's combiners count them.
    traits: properties that all members of a group must share.
    after: bits of the candidates that it depends on.
    bit: its own bit.
    is_grouped: whether the program makes XLA launch it in a group.
  """

  label: str
  kind: str
  computation_id: int
  instruction: hlo.Instruction
  num_bytes: int
  traits: table.Traits
  after: int
  bit: int
  is_grouped: bool = False


# Frontend attributes of XLA: on a call whose collectives are launched as a
# group (explicit_collectives_group_async_wrapper.cc), and, from JAX 0.12 on, on
# such collectives themselves (group_collectives_by_key.cc).
_GROUP = "_collectives_group"
_GROUP_KEY = "collective_group_key"
_HAS_KEYS = jax.__version_info__ >= (0, 12)


def find(module: hlo.Module) -> dict[str, Candidate]:
  """The candidates of a module before XLA's combiners, by label."""
  found: dict[str, Candidate] = {}
  in_groups = {
    called_id
    for instruction in module.instructions
    if _GROUP in instruction.frontend_attributes.map
    for called_id in instruction.called_computation_ids
  }
  for computation_id in module.executions:
    computation = module.computations[computation_id]
    if computation.opcodes.isdisjoint(table.COMBINERS):
      continue
    scattered = find_pairs(computation)
    after: dict[int, int] = {}  # Instruction -> the candidates it depends on.
    for instruction in computation.instructions:
      mask = 0
      for before in instruction.operand_ids:
        mask |= after[before]
      for before in instruction.control_predecessor_ids:
        mask |= after[before]
      after[instruction.id] = mask
      is_candidate = instruction.opcode in table.COMBINERS
      if not is_candidate or len(instruction.operand_ids) > 1:
        continue
      pair = scattered.get(instruction.id)
      kind = "reduce-scatter" if pair else instruction.opcode
      result = pair.slice if pair else instruction
      bit = 1 << len(found)
      after[instruction.id] |= bit
      found[instruction.name] = Candidate(
        label=instruction.name,
        kind=kind,
        computation_id=computation.id,
        instruction=instruction,
        num_bytes=hlo.shape_bytes(result.shape),
        traits=table.traits_of_instruction(
          module, computation, instruction, kind=kind
        ),
        after=mask,
        bit=bit,
        is_grouped=computation_id in in_groups
        or (_HAS_KEYS and _GROUP_KEY in instruction.frontend_attributes.map),
      )
  return found


def check(candidates: Mapping[str, Candidate], groups: Groups) -> None:
  """Checks that a module with these candidates can have these groups.

  Raises:
    CombineError: it cannot; the message names the labels and the reason.
  """
  named: set[str] = set()
  for group in groups:
    for label in group:
      if label not in candidates:
        raise errors.CombineError(
          f"{label} is not a collective that can be combined; these are:"
          f" {_few(list(candidates))}. Labels hold for one version of JAX and"
          " one module."
        )
      if label in named:
        raise errors.CombineError(
          f"{label} is in two combine groups: a collective can be in only one."
        )
      named.add(label)
    _check_group([candidates[label] for label in group])
  _check_order(candidates, groups)


def _check_group(members: list[Candidate]) -> None:
  for member in members if members[1:] else ():
    if member.is_grouped:
      raise errors.CombineError(
        f"{member.label} cannot be combined: the program launches it in a group"
        " with others."
      )
  for member in members[1:]:
    first = members[0]
    if differing := table.difference(first.traits, member.traits):
      trait, ours, theirs = differing
      raise errors.CombineError(
        f"{first.label} and {member.label} cannot be combined: they differ"
        f" in {trait} ({_short(ours)} and {_short(theirs)})."
      )
  together = sum(member.bit for member in members)
  for member in members:
    if member.after & together:
      earlier = next(m for m in members if m.bit & member.after)
      raise errors.CombineError(
        f"{earlier.label} and {member.label} cannot be combined:"
        f" {member.label} depends on {earlier.label}."
      )


def _check_order(candidates: Mapping[str, Candidate], groups: Groups) -> None:
  """Checks that combined collectives do not wait for each other in a cycle."""
  bits: dict[int, int] = {}
  after: dict[int, int] = {}
  for number, group in enumerate(groups):
    if len(group) > 1:
      members = [candidates[label] for label in group]
      bits[number] = sum(m.bit for m in members)
      after[number] = functools.reduce(operator.or_, (m.after for m in members))
  waits_for = {
    number: [other for other in bits if other != number and mask & bits[other]]
    for number, mask in after.items()
  }
  try:
    graphlib.TopologicalSorter(waits_for).prepare()
  except graphlib.CycleError as error:
    numbers = sorted(set(error.args[1]))
    cycle = [f"{{{_few(list(groups[n]))}}}" for n in numbers]
    raise errors.CombineError(
      f"The combine groups {_few(cycle)} conflict: they would wait for each"
      " other."
    ) from error


def _few(words: list[str]) -> str:
  if len(words) > 6:
    words = [*words[:6], f"{len(words) - 6} more"]
  *others, last = words
  return f"{', '.join(others)} and {last}" if others else last


def _short(value: Hashable) -> str:
  text = str(value)
  return text if len(text) <= 60 else f"{text[:57]}..."
