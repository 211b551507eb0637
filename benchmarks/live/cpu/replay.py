# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Replay of a scheduled module on XLA:CPU: one processor and one network.

A thread takes what is ready first come, first served, in the order of the
schedule. Small kernels it runs itself. A large product goes to other threads,
and whoever ends that goes on with what was waiting for it. A collective blocks
its thread, and collectives run one after the other, in program order. So a
collective runs beside a product only where a thread comes to it right behind
one (xla/backends/cpu/runtime/thunk_executor.cc; it hands half of its queue to
another thread where that is long, which is left out here).

All kernels share what the host has for the process. They slow each other down
and take no longer together than one after the other.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
import dataclasses
import functools
from typing import Literal

from benchmarks.live.cpu import behind_products
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes import memory_access

# "product": large, on other threads; "kernel": all else that computes.
Kind = Literal["collective", "product", "kernel"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Amount:
  """How much of what an instruction does.

  Attributes:
    kind: who does it.
    num_multiplications: of its products.
    num_bytes: that a kernel reads and writes, or a collective moves.
    num_arrays: that a collective moves.
  """

  kind: Kind
  num_multiplications: int = 0
  num_bytes: int = 0
  num_arrays: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Costs:
  """What things cost on a host and its network, in seconds.

  Attributes:
    multiplication_s: one multiplication and addition of a product.
    byte_s: one byte that a kernel reads or writes.
    launch_s: starting a kernel.
    array_s: the latency of one array of a collective.
    network_byte_s: one byte of an array of a collective.
  """

  multiplication_s: float
  byte_s: float
  launch_s: float
  array_s: float
  network_byte_s: float

  def seconds(self, amount: Amount) -> float:
    """What so much takes alone."""
    if amount.kind == "collective":
      return (
        amount.num_arrays * self.array_s
        + amount.num_bytes * self.network_byte_s
      )
    return (
      self.launch_s
      + amount.num_multiplications * self.multiplication_s
      + amount.num_bytes * self.byte_s
    )


@functools.lru_cache(maxsize=1)  # One module is looked at again and again.
def amounts(module: hlo.Module) -> Mapping[int, Amount]:
  """How much each instruction of a module does that takes time, by id.

  Those that call computations are left out: what is inside takes the time.
  """
  moved = _moved(module)
  found: dict[int, Amount] = {}
  for computation_id in module.executions:
    computation = module.computations[computation_id]
    for instruction in computation.instructions:
      if instruction.opcode in collectives.KINDS:
        amount = moved.get(instruction.id)
      elif any(module.callees(instruction)):
        amount = None
      else:
        amount = _computed(module, computation, instruction)
      if amount is not None:
        found[instruction.id] = amount
  return found


def _computed(
  module: hlo.Module, computation: hlo.Computation, instruction: hlo.Instruction
) -> Amount | None:
  """How much a kernel does; None for what takes no time."""
  if instruction.opcode in collectives.NOPS:
    return None
  multiplications = behind_products.num_multiplications(
    module, computation, instruction
  )
  if multiplications:
    is_large = behind_products.is_large(multiplications)
    return Amount(
      kind="product" if is_large else "kernel",
      num_multiplications=multiplications,
    )
  access = memory_access.of_instruction(
    module, computation, instruction, has_product=False
  )
  return Amount(kind="kernel", num_bytes=access.num_bytes)


def _moved(module: hlo.Module) -> dict[int, Amount]:
  """The collectives of a module, by id.

  A ring passes an array of B bytes on in n - 1 steps of B / n, and an
  all-reduce does so twice.
  """
  moved = {}
  for one in collectives.find(module):
    num_ranks = max(one.group_size, 2)
    passes = 2 if one.kind == "all-reduce" else 1
    moved[one.start_id] = Amount(
      kind="collective",
      num_bytes=round(one.nccl_bytes * passes * (num_ranks - 1) / num_ranks),
      num_arrays=one.num_operands,
    )
  return moved


# Work that is left and is less than this is none, in seconds.
_NOTHING_S = 1e-12


def step_s(module: hlo.Module, costs: Costs) -> float:
  """Seconds of a step."""
  return Replay(module).step_s(costs)


class Replay:
  """A module that is looked at once, and replayed at any costs."""

  def __init__(self, module: hlo.Module):
    self._entry = module.entry
    self._plans: dict[int, _Plan] = {}
    self._look_at(module, module.entry, amounts(module))

  def step_s(self, costs: Costs) -> float:
    """Seconds of a step; each computation is replayed once."""
    known: dict[int, float] = {}
    for computation_id, plan in self._plans.items():
      seconds = [_seconds(task, costs, known) for task in plan.tasks]
      known[computation_id] = _Run(plan, seconds).seconds()
    return known[self._entry.id]

  def _look_at(
    self,
    module: hlo.Module,
    computation: hlo.Computation,
    amounts: Mapping[int, Amount],
  ) -> None:
    """Adds a computation, behind those that it calls."""
    tasks: list[_Task] = []
    # Those that give each value, seen through what takes no time.
    sources: dict[int, frozenset[int]] = {}
    last_collective = frozenset[int]()
    for instruction in computation.instructions:
      before = frozenset[int]().union(
        *(sources[id_] for id_ in instruction.operand_ids),
        *(sources[id_] for id_ in instruction.control_predecessor_ids),
      )
      inside = tuple(module.callees(instruction))
      amount = None if inside else amounts.get(instruction.id)
      if amount is None and not inside:
        sources[instruction.id] = before
        continue
      for callee, _ in inside:
        if callee.id not in self._plans:
          self._look_at(module, callee, amounts)
      sources[instruction.id] = frozenset([len(tasks)])
      if amount is not None and amount.kind == "collective":
        before |= last_collective
        last_collective = sources[instruction.id]
      calls = tuple((callee.id, trips) for callee, trips in inside)
      tasks.append(_Task(amount=amount, calls=calls, before=before))
    self._plans[computation.id] = _Plan(tasks)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Task:
  """What takes time: an amount of work, or computations and their trips."""

  amount: Amount | None
  calls: tuple[tuple[int, int], ...]
  before: frozenset[int]


def _seconds(task: _Task, costs: Costs, known: Mapping[int, float]) -> float:
  if task.amount is not None:
    return costs.seconds(task.amount)
  return sum(known[callee] * trips for callee, trips in task.calls)


class _Plan:
  """The tasks of a computation, and which of them follow each."""

  def __init__(self, tasks: Sequence[_Task]):
    self.tasks = tasks
    self.kinds: list[Kind] = [
      "kernel" if task.amount is None else task.amount.kind for task in tasks
    ]
    self.after: list[list[int]] = [[] for _ in tasks]
    for number, task in enumerate(tasks):
      for other in task.before:
        self.after[other].append(number)


@dataclasses.dataclass(kw_only=True)
class _Thread:
  """A thread: what it has yet to run, and what it runs."""

  queue: collections.deque[int]
  task: int | None = None

  @property
  def is_busy(self) -> bool:
    return bool(self.queue) or self.task is not None


class _Run:
  """One run of tasks that take so long."""

  def __init__(self, plan: _Plan, seconds: Sequence[float]):
    self._kinds = plan.kinds
    self._after = plan.after
    self._left_s = list(seconds)
    self._waits_for = [len(task.before) for task in plan.tasks]
    first = (n for n, count in enumerate(self._waits_for) if not count)
    self._threads = [_Thread(queue=collections.deque(first))]
    self._products: list[int] = []

  def seconds(self) -> float:
    """How long it takes."""
    now_s = 0.0
    while True:
      for thread in self._threads:
        self._advance(thread)
      held = [t.task for t in self._threads if t.task is not None]
      computing = [n for n in held if self._kinds[n] == "kernel"]
      computing += self._products
      moving = [n for n in held if self._kinds[n] == "collective"]
      if not (computing or moving):
        return now_s
      now_s += self._pass(computing, moving)
      for number in (*computing, *moving):
        if self._left_s[number] <= _NOTHING_S:
          self._end(number)
      self._threads = [t for t in self._threads if t.is_busy]

  def _advance(self, thread: _Thread) -> None:
    """Has a thread take tasks until one of them holds it."""
    while thread.task is None and thread.queue:
      task = thread.queue.popleft()
      if self._kinds[task] == "product":
        self._products.append(task)
      else:
        thread.task = task

  def _pass(self, computing: Sequence[int], moving: Sequence[int]) -> float:
    """Lets time pass until the first task is over; returns how much."""
    share = len(computing)
    passed_s = min(
      *(self._left_s[n] * share for n in computing),
      *(self._left_s[n] for n in moving),
      float("inf"),
    )
    for number in computing:
      self._left_s[number] -= passed_s / share
    for number in moving:
      self._left_s[number] -= passed_s
    return passed_s

  def _end(self, number: int) -> None:
    ready = []
    for other in self._after[number]:
      self._waits_for[other] -= 1
      if not self._waits_for[other]:
        ready.append(other)
    if number in self._products:
      self._products.remove(number)
      self._threads.append(_Thread(queue=collections.deque(ready)))
      return
    for thread in self._threads:
      if thread.task == number:
        thread.task = None
        thread.queue.extend(ready)
