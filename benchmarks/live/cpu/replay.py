# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Replays a scheduled module on XLA:CPU, with one processor and one network.

A thread takes ready instructions in the order of the schedule, first come,
first served. It runs small kernels itself. A large product runs on other
threads, and the one that ends it continues with the instructions waiting for
it. A collective blocks its thread, and collectives run one after the other, in
program order. So a collective runs beside a product only if a thread reaches it
right after one (xla/backends/cpu/runtime/thunk_executor.cc, which also gives
half of a long queue to another thread; this replay does not).

All kernels share the cores of the process. They slow each other down, but take
no longer together than one after the other.
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

# "product": large, on other threads; "kernel": all other computation.
Kind = Literal["collective", "product", "kernel"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Amount:
  """The amount of work of an instruction.

  Attributes:
    kind: its kind.
    num_multiplications: multiplications of its products.
    num_bytes: bytes that a kernel reads and writes, or a collective moves.
    num_arrays: arrays that a collective moves.
  """

  kind: Kind
  num_multiplications: int = 0
  num_bytes: int = 0
  num_arrays: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Costs:
  """Costs on a host and its network, in seconds.

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
    """Time of this amount of work alone."""
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


@functools.lru_cache(maxsize=1)  # Callers ask for the same module repeatedly.
def amounts(module: hlo.Module) -> Mapping[int, Amount]:
  """The work of each instruction that takes time, by id.

  Excludes those that call computations, whose instructions take the time.
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
  """The work of a kernel; None for instructions that take no time."""
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
  """The work of a module's collectives, by id.

  A ring passes an array of B bytes on in n - 1 steps of B / n; an all-reduce
  does so twice.
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


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Task:
  """Something that takes time: work, or computations and their trips.

  `num_before` other tasks must end first, and those in `after` wait for it.
  """

  amount: Amount | None
  calls: tuple[tuple[int, int], ...]
  num_before: int
  after: list[int] = dataclasses.field(default_factory=list)

  @property
  def kind(self) -> Kind:
    return "kernel" if self.amount is None else self.amount.kind


@functools.lru_cache(maxsize=1)  # Like `amounts`.
def _tasks(module: hlo.Module) -> Mapping[int, Sequence[_Task]]:
  """The tasks of each computation that runs, callees first."""
  found: dict[int, list[_Task]] = {}

  def look_at(computation: hlo.Computation) -> None:
    tasks: list[_Task] = []
    # The tasks behind each value, through instructions that take no time.
    sources: dict[int, frozenset[int]] = {}
    last_collective = frozenset[int]()
    for instruction in computation.instructions:
      before = frozenset[int]().union(
        *(sources[id_] for id_ in instruction.operand_ids),
        *(sources[id_] for id_ in instruction.control_predecessor_ids),
      )
      inside = tuple(module.callees(instruction))
      amount = None if inside else amounts(module).get(instruction.id)
      if amount is None and not inside:
        sources[instruction.id] = before
        continue
      for callee, _ in inside:
        if callee.id not in found:
          look_at(callee)
      sources[instruction.id] = frozenset([len(tasks)])
      if amount is not None and amount.kind == "collective":
        before |= last_collective
        last_collective = sources[instruction.id]
      for other in sorted(before):
        tasks[other].after.append(len(tasks))
      calls = tuple((callee.id, trips) for callee, trips in inside)
      tasks.append(_Task(amount=amount, calls=calls, num_before=len(before)))
    found[computation.id] = tasks

  look_at(module.entry)
  return found


def step_s(module: hlo.Module, costs: Costs) -> float:
  """Seconds of a step; each computation is replayed once."""
  known: dict[int, float] = {}
  for computation_id, tasks in _tasks(module).items():
    seconds = [
      sum(known[callee] * trips for callee, trips in task.calls)
      if task.amount is None
      else costs.seconds(task.amount)
      for task in tasks
    ]
    known[computation_id] = _run_s(tasks, seconds)
  return known[module.entry.id]


# Remaining work below this counts as none, in seconds.
_NOTHING_S = 1e-12


@dataclasses.dataclass
class _Thread:
  """A thread: its queue, and its current task."""

  queue: collections.deque[int]
  task: int | None = None


def _run_s(tasks: Sequence[_Task], left_s: list[float]) -> float:
  """Time of tasks, given their times alone."""
  waits_for = [task.num_before for task in tasks]
  first = (n for n, count in enumerate(waits_for) if not count)
  threads = [_Thread(collections.deque(first))]
  products: list[int] = []
  now_s = 0.0
  while True:
    for thread in threads:  # Each takes tasks until one of them blocks it.
      while thread.task is None and thread.queue:
        number = thread.queue.popleft()
        if tasks[number].kind == "product":
          products.append(number)
        else:
          thread.task = number
    held = [it.task for it in threads if it.task is not None]
    computing = [n for n in held if tasks[n].kind == "kernel"] + products
    moving = [n for n in held if tasks[n].kind == "collective"]
    if not (computing or moving):
      return now_s
    # Until the first task ends.
    share = len(computing)
    ends_s = [left_s[n] * share for n in computing]
    passed_s = min(ends_s + [left_s[n] for n in moving])
    now_s += passed_s
    for number in computing:
      left_s[number] -= passed_s / share
    for number in moving:
      left_s[number] -= passed_s
    for number in (*computing, *moving):
      if left_s[number] > _NOTHING_S:
        continue
      for other in tasks[number].after:
        waits_for[other] -= 1
      ready = [it for it in tasks[number].after if not waits_for[it]]
      if number in products:
        products.remove(number)
        threads.append(_Thread(collections.deque(ready)))
      for thread in threads:
        if thread.task == number:
          thread.task = None
          thread.queue.extend(ready)
    threads = [it for it in threads if it.queue or it.task is not None]
