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

from lagom_xla.live.cpu import work as work_lib
from lagom_xla.passes import hlo

# Work that is left and is less than this is none, in seconds.
_NOTHING_S = 1e-12


def step_s(module: hlo.Module, costs: work_lib.Costs) -> float:
  """Seconds of a step.

  Args:
    module: scheduled.
    costs: of its instructions.
  """
  return Replay(module).step_s(costs)


class Replay:
  """A module that is looked at once, and replayed at any costs.

  Args:
    module: scheduled.
  """

  def __init__(self, module: hlo.Module):
    self._entry = module.entry
    self._plans: dict[int, _Plan] = {}
    self._look_at(module, module.entry, work_lib.amounts(module))

  def step_s(self, costs: work_lib.Costs) -> float:
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
    amounts: Mapping[int, work_lib.Amount],
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

  amount: work_lib.Amount | None
  calls: tuple[tuple[int, int], ...]
  before: frozenset[int]


def _seconds(
  task: _Task, costs: work_lib.Costs, known: Mapping[int, float]
) -> float:
  if task.amount is not None:
    return costs.seconds(task.amount)
  return sum(known[callee] * trips for callee, trips in task.calls)


class _Plan:
  """The tasks of a computation, and which of them follow each."""

  def __init__(self, tasks: Sequence[_Task]):
    self.tasks = tasks
    self.kinds: list[work_lib.Kind] = [
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
