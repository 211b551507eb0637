# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Orders of instructions as data: by name, for each reordered computation.

    orders = orders_lib.of(scheduled, reordered)
    reordered = orders_lib.apply(scheduled, orders)

XLA does not check a rewritten schedule. If two arrays share a buffer, an order
that looks fine can silently overwrite a value that is still needed. So this
module proves an order safe before XLA gets it. An instruction stays after its
operands and its control predecessors (`dependencies`). Two instructions that
touch one buffer keep their order if at least one of them writes it
(`aliasing`), because XLA's own order reads every value before it overwrites it.
"""

from __future__ import annotations

from collections.abc import Mapping

from lagom_xla import errors
from lagom_xla.passes import collectives
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import aliasing
from lagom_xla.passes.schedule import memory


def check_order(before: hlo.Module, after: hlo.Module) -> None:
  """Proves that a module computes the same in its new order.

  Raises:
    ScheduleError: an order is not legal, or not only the order differs.
  """
  old, new = before.proto.schedule.sequences, after.proto.schedule.sequences
  for id_, computation in before.computations.items():
    if (id_ in old) != (id_ in new) or (
      id_ in old
      and sorted(old[id_].instruction_ids) != sorted(new[id_].instruction_ids)
    ):
      raise errors.ScheduleError(
        f"The new order of {computation.name} does not have each of its"
        " instructions exactly once."
      )
  copy = after.copy()
  copy.proto.schedule.CopyFrom(before.proto.schedule)
  if copy.proto != before.proto:
    raise errors.ScheduleError(
      f"More than the order of {before.name} differs: a schedule may change"
      " nothing else."
    )
  for id_, computation in before.computations.items():
    reordered = after.computations[id_]
    order = [i.id for i in reordered.instructions]
    if order == [i.id for i in computation.instructions]:
      continue
    graph = dependencies.of(computation)
    if violation := graph.first_violation(order):
      later, earlier = violation
      reason = (
        "takes its value"
        if earlier in graph.operands[later]
        else "has a control dependence on it"
      )
      by_id = computation.by_id
      raise errors.ScheduleError(
        f"{by_id[earlier].name} must stay before {by_id[later].name}, which"
        f" {reason}."
      )
    _check_buffers(computation, reordered, aliasing.of(before))


def check_memory(before: hlo.Module, after: hlo.Module, limit: int) -> None:
  """Checks that a new order needs at most `limit` bytes at its peak.

  The peak is the estimate of `memory`. The new order may always need as much as
  the old one. Raises ScheduleError if it needs more than both.
  """
  buffers = aliasing.of(before)
  old = memory.peak_bytes(before, buffers)
  new = memory.peak_bytes(after, buffers)
  if new > max(old, limit):
    raise errors.ScheduleError(
      f"The new order of {before.name} needs about {new} bytes at its peak, but"
      f" only {limit} are allowed; the old order needs {old}. Move fewer"
      " instructions, or not as far."
    )


def _check_buffers(
  old: hlo.Computation, new: hlo.Computation, buffers: aliasing.Buffers
) -> None:
  position = new.position
  # By buffer: among the instructions that touched it so far in the old order,
  # and among those that wrote it, the latest in the new order.
  touched: dict[int, hlo.Instruction] = {}
  written: dict[int, hlo.Instruction] = {}
  for instruction in old.instructions:
    access = buffers.access(old, instruction)
    for buffer in access.all:
      writes = buffer in access.writes
      other = (touched if writes else written).get(buffer)
      if other and position[other.id] > position[instruction.id]:
        raise errors.ScheduleError(
          f"{other.name} must stay before {instruction.name}: they share a"
          f" buffer, which {(instruction if writes else other).name}"
          " overwrites."
        )
      for farthest in (touched, written) if writes else (touched,):
        last = farthest.get(buffer)
        if last is None or position[last.id] < position[instruction.id]:
          farthest[buffer] = instruction


def predecessors(
  computation: hlo.Computation, buffers: aliasing.Buffers
) -> dict[int, tuple[int, ...]]:
  """Each instruction's predecessors in any order that `check_order` proves.

  Lists only direct predecessors.
  """
  graph = dependencies.of(computation)
  before = {id_: dict.fromkeys(p) for id_, p in graph.predecessors.items()}
  readers: dict[int, list[int]] = {}
  writer: dict[int, int] = {}
  for instruction in computation.instructions:
    access = buffers.access(computation, instruction)
    for buffer in access.all:
      earlier = [writer[buffer]] if buffer in writer else []
      if buffer in access.writes:
        earlier += readers.pop(buffer, [])
        writer[buffer] = instruction.id
      else:
        readers.setdefault(buffer, []).append(instruction.id)
      before[instruction.id].update(dict.fromkeys(earlier))
  for id_, earlier in before.items():
    earlier.pop(id_, None)
  return {id_: tuple(earlier) for id_, earlier in before.items()}


# Computation -> its instructions, in their order.
Orders = Mapping[str, tuple[str, ...]]


def of(before: hlo.Module, after: hlo.Module) -> Orders:
  """The new orders of the computations whose schedules differ."""
  orders = {}
  for id_, new in after.computations.items():
    names = tuple(i.name for i in new.instructions)
    if names != tuple(i.name for i in before.computations[id_].instructions):
      orders[new.name] = names
  return orders


def apply(module: hlo.Module, orders: Orders) -> hlo.Module:
  """A scheduled module with these orders.

  Args:
    module: as scheduled by XLA; not changed.
    orders: orders of some of its computations.

  Raises:
    ScheduleError: an order is not for this module, or not legal.
  """
  if not orders:
    return module
  by_name = {c.name: c for c in module.computations.values()}
  reordered = module.copy()
  for name, order in orders.items():
    if name not in by_name:
      raise errors.ScheduleError(
        f"{module.name} has no computation {name}: the order is for another"
        " schedule."
      )
    id_of = {i.name: i.id for i in by_name[name].instructions}
    unknown = [n for n in order if n not in id_of]
    missing = sorted(id_of.keys() - set(order))
    if unknown or missing or len(order) != len(id_of):
      differs = (
        f"has no {unknown[0]}"
        if unknown
        else f"also has {missing[0]}"
        if missing
        else "has each of its instructions once"
      )
      raise errors.ScheduleError(
        f"The order of {name} names {len(order)} instructions, but the"
        f" computation {differs}: the order is for another schedule."
      )
    sequence = reordered.proto.schedule.sequences[by_name[name].id]
    sequence.instruction_ids[:] = [id_of[n] for n in order]
  check_order(module, reordered)
  return reordered


def in_words(orders: Orders) -> str:
  """Orders in a few words, such as "2 computations in our order"."""
  number = len(orders)
  return f"{number} computation{'' if number == 1 else 's'} in our order"


def check_followed(module: hlo.Module, orders: Orders) -> None:
  """Checks that a compiled module runs in the requested order.

  After scheduling, XLA still replaces instructions, and moves the start of a
  collective that overlaps no kernel to its done. All remaining instructions
  that take time must be in the requested order.

  Raises:
    CompileError: they do not.
  """
  by_name = {c.name: c for c in module.computations.values()}
  moved = {
    id_
    for collective in collectives.find(module)
    if collective.form == "sync"
    for id_ in (collective.start_id, collective.done_id)
  }
  for name, order in orders.items():
    if name not in by_name:
      raise errors.CompileError(
        f"{module.name} was compiled without the computation {name} that an"
        " order is for; make the plan without orders."
      )
    left = [
      i.name
      for i in by_name[name].instructions
      if i.opcode not in aliasing.FORWARDING and i.id not in moved
    ]
    names = set(left)
    if left != [n for n in order if n in names]:
      raise errors.CompileError(
        f"XLA compiled {name} of {module.name} in another order than requested;"
        " make the plan without orders."
      )
