# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rewrite pass, after XLA's scheduler: starts earlier, dones later.

    wanted = [moves.Move(collective="all-gather-start.1", before="fusion.7")]
    bytes_ = moves.rewrite(module, wanted)         # at POST_SCHEDULER

What takes no time, such as a bitcast or an element of a tuple, moves along:
operands before a start, users after a done. A synchronous collective is
its own start and done. `earliest` and `latest` say how far a collective can
go; every order is proved before it is returned (`reordering`).

More in flight for longer means more memory, so `peak_bytes` sets a limit.
"""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses
import functools

from lagom_xla import errors
from lagom_xla.passes import collectives
from lagom_xla.passes import dependencies
from lagom_xla.passes import donation
from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import aliasing
from lagom_xla.passes.schedule import reordering

check = reordering.check


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Move:
  """Where a collective should start, or where it should be waited for.

  Attributes:
    collective: name of the instruction that starts it.
    before: instruction that its start should stand right before, which must be
      one that it now stands after; None leaves the start alone.
    after: instruction that its done should stand right after, which must be one
      that it now stands before; None leaves the done alone.
  """

  collective: str
  before: str | None = None
  after: str | None = None


def rewrite(
  module: hlo.Module,
  moves: Iterable[Move],
  *,
  peak_bytes: int | None = None,
) -> bytes:
  """What a pass at POST_SCHEDULER returns to make these moves.

  Args:
    module: as POST_SCHEDULER shows it.
    moves: as for `apply`.
    peak_bytes: as for `apply`.

  Returns:
    A serialized HloModuleProto.

  Raises:
    ScheduleError: as from `apply`.
    DonationLostError: the module donates inputs, and this JAX forgets
      that where a pass returns a module.
  """
  donation.check(module, "moves collectives")
  moved = apply(module, moves, peak_bytes=peak_bytes)
  return moved.proto.SerializeToString()


def apply(
  module: hlo.Module,
  moves: Iterable[Move],
  *,
  peak_bytes: int | None = None,
) -> hlo.Module:
  """The module with collectives moved, one move after the other.

  Args:
    module: scheduled; it stays as it is.
    moves: what to move.
    peak_bytes: the most memory that the new order may need by the estimate of
      `live_bytes`, unless the old order needs as much.

  Raises:
    ScheduleError: a move is not legal, or takes too much memory.
  """
  context = _context(module)
  orders: dict[int, _Order] = {}
  for move in moves:
    home = context.home(move.collective)
    order = orders.setdefault(home.id, _Order(home))
    if move.before is not None:
      order.move_start(move.collective, move.before)
    if move.after is not None:
      order.move_done(move.collective, move.after)
  proto = type(module.proto)()
  proto.CopyFrom(module.proto)
  for id_, order in orders.items():
    proto.schedule.sequences[id_].instruction_ids[:] = order.ids
  moved = hlo.Module(proto, module.num_partitions)
  check(module, moved)
  if peak_bytes is not None:
    reordering.check_memory(module, moved, peak_bytes)
  return moved


def earliest(module: hlo.Module, collective: str) -> str:
  """The first instruction that a collective's start may be moved before.

  The start's own name where it cannot start earlier.

  Raises:
    ScheduleError: there is no such collective.
  """
  context = _context(module)
  order = context.order(collective)
  start = order.named(collective)
  on_the_way = reversed(order.ids[: order.ids.index(start.id)])
  return order.farthest(
    start, order.graph.predecessors, on_the_way, context.buffers
  )


def latest(module: hlo.Module, collective: str) -> str:
  """The last instruction that a collective's done may be moved after.

  The done's own name where it cannot be later.

  Raises:
    ScheduleError: there is no such collective, or its done is elsewhere.
  """
  context = _context(module)
  order = context.order(collective)
  done = order.done_of(collective)
  on_the_way = order.ids[order.ids.index(done.id) + 1 :]
  return order.farthest(
    done, order.graph.successors, on_the_way, context.buffers
  )


class _Order:
  """A computation whose instructions are moved about.

  Attributes:
    ids: of the instructions, in their present order.
    graph: their dependences.
  """

  def __init__(self, home: hlo.Computation):
    self._home = home
    self._by_name = {i.name: i for i in home.instructions}
    self.ids = [i.id for i in home.instructions]
    self.graph = dependencies.of(home)

  def named(self, name: str) -> hlo.Instruction:
    """The instruction of that name."""
    if name not in self._by_name:
      raise errors.ScheduleError(
        f"{self._home.name} has no instruction {name}: a collective stays in"
        " its computation."
      )
    return self._by_name[name]

  def done_of(self, collective: str) -> hlo.Instruction:
    """What waits for a collective; a synchronous one itself."""
    start = self.named(collective)
    done = self.graph.done_of.get(start.id)
    if done is not None:
      return self._home.by_id[done]
    if start.opcode.endswith("-start") or start.opcode in ("send", "recv"):
      raise errors.ScheduleError(
        f"{collective} is waited for outside of {self._home.name}: only its"
        " start can be moved."
      )
    return start

  def move_start(self, collective: str, before: str) -> None:
    """Puts a start, and what moves along, before an instruction."""
    start, target = self.named(collective), self.named(before)
    begin, end = self.ids.index(target.id), self.ids.index(start.id)
    if begin > end:
      raise errors.ScheduleError(
        f"{collective} stands before {before} already: a start can only"
        " be moved to an earlier place."
      )
    along = self._along(start, self.graph.predecessors)
    going, staying = self._parted(begin, end + 1, along, target)
    self.ids[begin : end + 1] = going + staying

  def move_done(self, collective: str, after: str) -> None:
    """Puts a done, and what moves along, after an instruction."""
    done, target = self.done_of(collective), self.named(after)
    begin, end = self.ids.index(done.id), self.ids.index(target.id)
    if begin > end:
      raise errors.ScheduleError(
        f"{done.name} stands after {after} already: a done can only be moved"
        " to a later place."
      )
    along = self._along(done, self.graph.successors)
    going, staying = self._parted(begin, end + 1, along, target)
    self.ids[begin : end + 1] = staying + going

  def farthest(
    self,
    moved: hlo.Instruction,
    edges: dependencies.Edges,
    on_the_way: Iterable[int],
    buffers: aliasing.Buffers,
  ) -> str:
    """How far an instruction can go, by what it meets on the way."""
    along = self._along(moved, edges)
    obstacles = {other for id_ in along for other in edges[id_]} - along
    own = buffers.access(self._home, moved)
    reached = moved
    for id_ in on_the_way:
      other = self._home.by_id[id_]
      if id_ in obstacles or own.conflicts(buffers.access(self._home, other)):
        break
      if id_ not in along:
        reached = other
    return reached.name

  def _along(
    self, moved: hlo.Instruction, edges: dependencies.Edges
  ) -> set[int]:
    """An instruction and those that move along, since they take no time."""
    along = {moved.id}
    stack = [moved.id]
    while stack:
      for id_ in edges[stack.pop()]:
        opcode = self._home.by_id[id_].opcode
        if id_ not in along and opcode in aliasing.FORWARDING:
          along.add(id_)
          stack.append(id_)
    return along

  def _parted(
    self, begin: int, end: int, along: set[int], target: hlo.Instruction
  ) -> tuple[list[int], list[int]]:
    """What moves of a part of the order, and what stays."""
    part = self.ids[begin:end]
    if target.id in along and len(part) > 1:
      raise errors.ScheduleError(
        f"{target.name} takes no time and moves along: name an instruction"
        " that stays."
      )
    going = [id_ for id_ in part if id_ in along]
    return going, [id_ for id_ in part if id_ not in along]


class _Context:
  """The buffers and orders of one module, each found once."""

  def __init__(self, module: hlo.Module):
    self._module = module
    self._orders: dict[int, _Order] = {}

  @functools.cached_property
  def buffers(self) -> aliasing.Buffers:
    """Which values share memory."""
    return aliasing.of(self._module)

  @functools.cached_property
  def _homes(self) -> dict[str, hlo.Computation]:
    """The computation that each collective stands in, by its start's name."""
    by_name = {c.name: c for c in self._module.computations.values()}
    return {
      c.name.partition("/")[0]: by_name[c.computation]
      for c in collectives.find(self._module)
    }

  def home(self, collective: str) -> hlo.Computation:
    """The computation that a collective stands in."""
    if collective not in self._homes:
      raise errors.ScheduleError(
        f"{self._module.name} has no collective {collective}: name the"
        " instruction that starts it."
      )
    return self._homes[collective]

  def order(self, collective: str) -> _Order:
    """The order that a collective stands in; not to be changed."""
    home = self.home(collective)
    if home.id not in self._orders:
      self._orders[home.id] = _Order(home)
    return self._orders[home.id]


@functools.lru_cache(maxsize=1)
def _context(module: hlo.Module) -> _Context:
  return _Context(module)
