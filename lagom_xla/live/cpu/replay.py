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
from collections.abc import Sequence
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
  return _Replay(module, costs).of(module.entry)


class _Replay:
  """A module whose computations are replayed once each."""

  def __init__(self, module: hlo.Module, costs: work_lib.Costs):
    self._module = module
    self._costs = costs
    self._known: dict[int, float] = {}

  def of(self, computation: hlo.Computation) -> float:
    """Seconds of a computation."""
    if computation.id not in self._known:
      self._known[computation.id] = _Run(self._tasks(computation)).seconds()
    return self._known[computation.id]

  def _tasks(self, computation: hlo.Computation) -> list[_Task]:
    tasks: list[_Task] = []
    # Those that give each value, seen through what takes no time.
    sources: dict[int, frozenset[int]] = {}
    last_collective = frozenset[int]()
    for instruction in computation.instructions:
      before = frozenset[int]().union(
        *(sources[id_] for id_ in instruction.operand_ids),
        *(sources[id_] for id_ in instruction.control_predecessor_ids),
      )
      work = self._work(computation, instruction)
      if work is None:
        sources[instruction.id] = before
        continue
      sources[instruction.id] = frozenset([len(tasks)])
      if work.kind == "collective":
        before |= last_collective
        last_collective = sources[instruction.id]
      tasks.append(_Task(work=work, before=before))
    return tasks

  def _work(
    self, computation: hlo.Computation, instruction: hlo.Instruction
  ) -> work_lib.Work | None:
    inside = list(self._module.callees(instruction))
    if inside:
      seconds = sum(self.of(callee) * trips for callee, trips in inside)
      return work_lib.Work(kind="kernel", seconds=seconds)
    return self._costs.work(self._module, computation, instruction)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Task:
  work: work_lib.Work
  before: frozenset[int]


@dataclasses.dataclass(kw_only=True)
class _Thread:
  """A thread: what it has yet to run, and what it runs."""

  queue: collections.deque[int]
  task: int | None = None

  @property
  def is_busy(self) -> bool:
    return bool(self.queue) or self.task is not None


class _Run:
  """One run of tasks."""

  def __init__(self, tasks: Sequence[_Task]):
    self._kinds = [task.work.kind for task in tasks]
    self._left_s = [task.work.seconds for task in tasks]
    self._waits_for = [len(task.before) for task in tasks]
    self._after: list[list[int]] = [[] for _ in tasks]
    for number, task in enumerate(tasks):
      for other in task.before:
        self._after[other].append(number)
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
