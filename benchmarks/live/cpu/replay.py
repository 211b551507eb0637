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


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Task:
  """What takes time: an amount of work, or computations and their trips.

  `num_before` others have to end first, and those `after` wait for it.
  """

  amount: Amount | None
  calls: tuple[tuple[int, int], ...]
  num_before: int
  after: list[int] = dataclasses.field(default_factory=list)

  @property
  def kind(self) -> Kind:
    return "kernel" if self.amount is None else self.amount.kind


@functools.lru_cache(maxsize=1)  # As `amounts`.
def _tasks(module: hlo.Module) -> Mapping[int, Sequence[_Task]]:
  """Those of each computation that runs, behind those that it calls."""
  found: dict[int, list[_Task]] = {}

  def look_at(computation: hlo.Computation) -> None:
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


# Work that is left and is less than this is none, in seconds.
_NOTHING_S = 1e-12


@dataclasses.dataclass
class _Thread:
  """A thread: what it has yet to run, and what it runs."""

  queue: collections.deque[int]
  task: int | None = None


def _run_s(tasks: Sequence[_Task], left_s: list[float]) -> float:
  """How long tasks take that take so long alone."""
  waits_for = [task.num_before for task in tasks]
  first = (n for n, count in enumerate(waits_for) if not count)
  threads = [_Thread(collections.deque(first))]
  products: list[int] = []
  now_s = 0.0
  while True:
    for thread in threads:  # Each takes tasks until one of them holds it.
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
    # Until the first task is over.
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
