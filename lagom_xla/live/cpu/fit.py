# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fit of a host's costs: to what a trace shows, and to the step time.

Collectives and small kernels are in the trace as long as they took. What a
multiplication costs is not, as large products run on other threads, which share
the cores with all else; it is what makes the replayed step take as long as the
one that was traced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import dataclasses

import numpy as np

from lagom_xla import errors
from lagom_xla.live.cpu import network
from lagom_xla.live.cpu import replay
from lagom_xla.live.cpu import trace
from lagom_xla.live.cpu import work as work_lib
from lagom_xla.passes import hlo

# Of a step, if there is no trace: where hiding gains most.
_MOVING_SHARE = 0.5
_NUM_HALVINGS = 30


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
  """An instruction of a trace: what it does, and how long it held a thread."""

  amount: work_lib.Amount
  held_s: float


def costs(module: hlo.Module, ran: trace.Execution) -> work_lib.Costs:
  """The costs with which a replay of a module takes what it took.

  Args:
    module: scheduled, as it ran.
    ran: one of its executions.

  Raises:
    TraceError: the trace has no collective of the module.
  """
  seen = [
    _Seen(amount=amount, held_s=ran.held_s[instruction.name])
    for instruction, amount, _ in _amounts(module)
    if instruction.name in ran.held_s
  ]
  moved = [one for one in seen if one.amount.kind == "collective"]
  if not moved:
    raise errors.TraceError(
      f"The trace of {module.name} has none of its collectives: trace a few of"
      " its steps."
    )
  array_s, network_byte_s = _network(moved)
  launch_s, byte_s = _kernels(
    [
      one
      for one in seen
      if one.amount.kind == "kernel" and not one.amount.num_multiplications
    ]
  )
  known = work_lib.Costs(
    multiplication_s=0.0,
    byte_s=byte_s,
    launch_s=launch_s,
    array_s=array_s,
    network_byte_s=network_byte_s,
  )
  return _with_products(module, known, ran.step_s)


def _amounts(
  module: hlo.Module,
) -> Iterator[tuple[hlo.Instruction, work_lib.Amount, int]]:
  """What each instruction does, and how often it runs in a step."""
  amounts = work_lib.amounts(module)
  for computation_id, executions in module.executions.items():
    for instruction in module.computations[computation_id].instructions:
      if instruction.id in amounts:
        yield instruction, amounts[instruction.id], executions


def _network(moved: Sequence[_Seen]) -> tuple[float, float]:
  """Seconds of an array and of a byte."""
  amounts = np.array(
    [[one.amount.num_arrays, one.amount.num_bytes] for one in moved], float
  )
  times_s = np.array([one.held_s for one in moved])
  per_array = amounts[:, 1] / amounts[:, 0]
  if per_array.max() > 2 * per_array.min():
    array_s, byte_s = _least_squares(amounts, times_s)
    return float(array_s), float(byte_s)
  num_arrays, num_bytes = map(float, amounts.sum(axis=0))
  return network.split(num_arrays, num_bytes, float(times_s.sum()))


def _kernels(seen: Sequence[_Seen]) -> tuple[float, float]:
  """Seconds of a launch and of a byte."""
  if not seen:
    return 0.0, 0.0
  amounts = np.array([[1.0, one.amount.num_bytes] for one in seen])
  launch_s, byte_s = _least_squares(
    amounts, np.array([one.held_s for one in seen])
  )
  return float(launch_s), float(byte_s)


def _least_squares(amounts: np.ndarray, times_s: np.ndarray) -> np.ndarray:
  """Two costs of at least 0; errors count by the square root of the times.

  By hand: to import scipy.optimize takes 0.3 s of a core, beside training.
  """
  weights = 1 / np.sqrt(np.maximum(times_s, times_s.max() * 1e-6))
  scale = np.maximum(amounts.max(axis=0), 1)
  columns = amounts / scale * weights[:, None]
  wanted = times_s * weights
  solution, *_ = np.linalg.lstsq(columns, wanted, rcond=None)
  if solution.min() < 0:  # Then the best is one of them alone.
    products = columns.T @ wanted
    squares = (columns**2).sum(axis=0)
    alone = np.divide(products, squares, np.zeros(2), where=squares > 0)
    solution = np.where(alone * products == max(alone * products), alone, 0)
  return solution / scale


def _with_products(
  module: hlo.Module, known: work_lib.Costs, step_s: float
) -> work_lib.Costs:
  """The costs with what makes a multiplication's replay take `step_s`."""

  def at(multiplication_s: float) -> work_lib.Costs:
    return dataclasses.replace(known, multiplication_s=multiplication_s)

  total = sum(
    times * amount.num_multiplications for _, amount, times in _amounts(module)
  )
  if not total:
    return known
  replayed = replay.Replay(module)
  low, high = 0.0, step_s / total
  for _ in range(_NUM_HALVINGS):
    middle = (low + high) / 2
    if replayed.step_s(at(middle)) < step_s:
      low = middle
    else:
      high = middle
  return at(high)


def without_trace(module: hlo.Module, step_s: float) -> work_lib.Costs:
  """Costs to rank by, as if half of a step were for collectives.

  Args:
    module: scheduled, as it ran.
    step_s: seconds of a step.
  """
  num_bytes = num_arrays = 0
  for _, amount, times in _amounts(module):
    if amount.kind == "collective":
      num_bytes += times * amount.num_bytes
      num_arrays += times * amount.num_arrays
  array_s, network_byte_s = network.split(
    num_arrays, num_bytes, step_s * _MOVING_SHARE
  )
  known = work_lib.Costs(
    multiplication_s=0.0,
    byte_s=0.0,
    launch_s=0.0,
    array_s=array_s,
    network_byte_s=network_byte_s,
  )
  return _with_products(module, known, step_s)
