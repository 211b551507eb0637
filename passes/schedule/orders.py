# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Orders of instructions, as data: by name, for each computation that has one.

    orders = orders_lib.of(scheduled, reordered)
    reordered = orders_lib.apply(scheduled, orders)

An order names every instruction of its computation. A few names would do to say
what moved, but not to notice that XLA made another schedule to move it in: an
order holds for the very instructions that it names, and is refused for others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lagom_xla import errors
from lagom_xla.passes import collectives
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import aliasing
from lagom_xla.passes.schedule import reordering

# Computation -> its instructions, in their order.
Orders = Mapping[str, tuple[str, ...]]


def of(before: hlo.Module, after: hlo.Module) -> Orders:
  """The orders of the computations that two schedules of a module differ in."""
  return {
    new.name: _names(new)
    for id_, new in after.computations.items()
    if _names(new) != _names(before.computations[id_])
  }


def apply(module: hlo.Module, orders: Orders) -> hlo.Module:
  """A scheduled module with computations in these orders.

  Args:
    module: as XLA scheduled it; it stays as it is.
    orders: of some of its computations.

  Raises:
    ScheduleError: an order is not for this module, or not legal.
  """
  if not orders:
    return module
  by_name = {c.name: c for c in module.computations.values()}
  proto = type(module.proto)()
  proto.CopyFrom(module.proto)
  for name, order in orders.items():
    if name not in by_name:
      raise errors.ScheduleError(
        f"{module.name} has no computation {name}: the order is for another"
        " schedule."
      )
    ids = _ids(by_name[name], order)
    proto.schedule.sequences[by_name[name].id].instruction_ids[:] = ids
  reordered = hlo.Module(proto, module.num_partitions)
  reordering.check(module, reordered)
  return reordered


def in_words(orders: Orders) -> str:
  """Orders in a few words, such as "2 computations in our order"."""
  number = len(orders)
  return f"{number} computation{'' if number == 1 else 's'} in our order"


def check_followed(module: hlo.Module, orders: Orders) -> None:
  """Checks that a compiled module runs in the order that it was given.

  After its schedule is made XLA still replaces instructions, and puts the start
  of a collective that overlaps no kernel back to its done. All others that are
  left and that take time have to stand in their order.

  Raises:
    CompileError: they do not.
  """
  by_name = {c.name: c for c in module.computations.values()}
  sync = {c.start_id for c in collectives.find(module) if c.form == "sync"}
  for name, order in orders.items():
    if name not in by_name:
      raise errors.CompileError(
        f"{module.name} was compiled without a computation {name}, whose order"
        " was asked for; make the plan without orders."
      )
    left = _that_run(by_name[name], sync)
    names = set(left)
    if left != [n for n in order if n in names]:
      raise errors.CompileError(
        f"XLA compiled {name} of {module.name} in another order than was asked"
        " for; make the plan without orders."
      )


def _names(computation: hlo.Computation) -> tuple[str, ...]:
  return tuple(i.name for i in computation.instructions)


def _ids(computation: hlo.Computation, order: Sequence[str]) -> list[int]:
  """The ids of an order that names each instruction once."""
  id_of = {i.name: i.id for i in computation.instructions}
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
      f"The order of {computation.name} names {len(order)} instructions, and"
      f" the computation {differs}: the order is for another schedule."
    )
  return [id_of[name] for name in order]


def _that_run(computation: hlo.Computation, sync: set[int]) -> list[str]:
  """Names of what takes time, without collectives that XLA moved itself."""
  done_of = dependencies.of(computation).done_of
  moved = sync | {done_of[start] for start in sync if start in done_of}
  return [
    i.name
    for i in computation.instructions
    if i.opcode not in aliasing.FORWARDING and i.id not in moved
  ]
