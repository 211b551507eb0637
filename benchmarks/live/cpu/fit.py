# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fits a host's costs to a trace and to the step time.

The trace shows the times of collectives and small kernels. It does not show the
cost of a multiplication, because large products run on other threads, which
share the cores with everything else. This cost is chosen so that the replayed
step takes as long as the traced one.

By default, XLA:CPU reduces all gradients in one collective. Gloo runs it array
by array, but a trace shows only the total: n arrays of B bytes took T. Any
latency a and time per byte b with n a + B b = T would fit. So both have
log-uniform priors over the range of real hosts and networks, and the latency is
its mean given T. If T is beyond that range, the latency is: an array waits
until the processes at both ends have a core, which has no bound on shared
hosts, while links have one.

The parts and the step time come from the same execution. Collectives and steps
vary by several times between executions, with the arrival of other processes
and the load of the cores. With parts and step time from different executions,
products would get the difference, which has nothing to do with them.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
import dataclasses
import math
import pathlib
import statistics
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.live.cpu import replay
from lagom_xla import errors
from lagom_xla.passes import hlo

if TYPE_CHECKING:
  from lagom_xla.profiling import steps as steps_lib

# The best of forty all-reduces of one number between two processes of one
# machine.
LEAST_ARRAY_S = 186e-6
# Latency of one of 97 arrays in an all-reduce, on two shaped hosts at a load of
# fourteen on two cores: the savings of concatenating them, in the row "many
# small gradients" at 1 Gb/s of benchmarks/live/results/live.csv.
MOST_ARRAY_S = 2.1e-3
# The best of 4 MiB between two processes of one machine; and 100 Mb/s Ethernet.
LEAST_BYTE_S = 1 / 1e9
MOST_BYTE_S = 8 / 100e6


def split(
  num_arrays: float, num_bytes: float, seconds: float
) -> tuple[float, float]:
  """Seconds per array and per byte that a host sends, for all collectives."""
  waited_s = _waited_s(num_arrays, num_bytes, seconds)
  return waited_s / num_arrays, (seconds - waited_s) / max(num_bytes, 1)


def _waited_s(num_arrays: float, num_bytes: float, seconds: float) -> float:
  """The part of the collectives' seconds that is latency."""
  least_s = num_arrays * LEAST_ARRAY_S
  low = max(least_s, seconds - num_bytes * MOST_BYTE_S)
  high = min(num_arrays * MOST_ARRAY_S, seconds - num_bytes * LEAST_BYTE_S)
  if low >= high:
    # Faster than the range, by the same factor in both; or slower.
    is_quick = low == least_s
    quick_s = seconds * least_s / (least_s + num_bytes * LEAST_BYTE_S)
    return quick_s if is_quick else low
  # The mean of x, whose density given T is 1 / (x (T - x)), from low to high.
  rest_low, rest_high = seconds - high, seconds - low
  return (
    seconds
    * math.log(rest_high / rest_low)
    / (math.log(high / low) + math.log(rest_high / rest_low))
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Execution:
  """One execution of a step on one device.

  Attributes:
    step_s: seconds from the start of its first instruction to the end of its
      last.
    held_s: seconds of one execution of each instruction, by name; for
      collectives, including the wait for other processes.
  """

  step_s: float
  held_s: Mapping[str, float]


def usual(folder: pathlib.Path, module: hlo.Module) -> Execution:
  """The execution with median time in the newest profile of a folder.

  Raises:
    TraceError: there is no profile, or none of that module on a CPU.
  """
  from lagom_xla import profiling  # Here, to keep first calls of steps fast.

  steps = sorted(profiling.read(folder, module).whole_steps, key=_time_us)
  step = steps[(len(steps) - 1) // 2]
  times_s = collections.defaultdict(list)
  for event in (*step.kernels, *step.collectives):
    times_s[event.name].append(event.time_us / 1e6)
  return Execution(
    step_s=_time_us(step) / 1e6,
    held_s={name: statistics.mean(each) for name, each in times_s.items()},
  )


def _time_us(step: steps_lib.DeviceStep) -> float:
  return step.end_us - step.begin_us


# Share of collectives without a trace: the one where hiding gains most.
_MOVING_SHARE = 0.5
_NUM_HALVINGS = 30


def costs(module: hlo.Module, ran: Execution) -> replay.Costs:
  """The costs with which a replay of a module takes as long as its execution.

  Raises:
    TraceError: the trace has no collective of the module.
  """
  seen = [
    (amount, ran.held_s[instruction.name])
    for instruction, amount, _ in _amounts(module)
    if instruction.name in ran.held_s
  ]
  moved = [it for it in seen if it[0].kind == "collective"]
  if not moved:
    raise errors.TraceError(
      f"The trace of {module.name} has none of its collectives: trace a few"
      " steps."
    )
  arrays = np.array([[it.num_arrays, it.num_bytes] for it, _ in moved], float)
  moved_s = np.array([held_s for _, held_s in moved])
  per_array = arrays[:, 1] / arrays[:, 0]
  if per_array.max() > 2 * per_array.min():
    array_s, network_byte_s = _least_squares(arrays, moved_s)
  else:
    num_arrays, num_bytes = map(float, arrays.sum(axis=0))
    array_s, network_byte_s = split(num_arrays, num_bytes, float(moved_s.sum()))
  kernels = [
    ((1.0, amount.num_bytes), held_s)
    for amount, held_s in seen
    if amount.kind == "kernel" and not amount.num_multiplications
  ]
  launch_s = byte_s = 0.0
  if kernels:
    launched, held = zip(*kernels, strict=True)
    launch_s, byte_s = _least_squares(np.array(launched), np.array(held))
  known = _NO_COSTS | {
    "byte_s": float(byte_s),
    "launch_s": float(launch_s),
    "array_s": float(array_s),
    "network_byte_s": float(network_byte_s),
  }
  return _with_products(module, known, ran.step_s)


def _amounts(
  module: hlo.Module,
) -> Iterator[tuple[hlo.Instruction, replay.Amount, int]]:
  """The amount of work of each instruction, and its executions per step."""
  amounts = replay.amounts(module)
  for computation_id, executions in module.executions.items():
    for instruction in module.computations[computation_id].instructions:
      if instruction.id in amounts:
        yield instruction, amounts[instruction.id], executions


def _least_squares(amounts: np.ndarray, times_s: np.ndarray) -> np.ndarray:
  """Two nonnegative costs; errors are weighted by the square root of the times.

  Without scipy.optimize, whose import takes 0.3 s of a core beside training.
  """
  weights = 1 / np.sqrt(np.maximum(times_s, times_s.max() * 1e-6))
  scale = np.maximum(amounts.max(axis=0), 1)
  columns = amounts / scale * weights[:, None]
  wanted = times_s * weights
  solution, *_ = np.linalg.lstsq(columns, wanted, rcond=None)
  if solution.min() < 0:  # Then only one of them is positive.
    products = columns.T @ wanted
    squares = (columns**2).sum(axis=0)
    alone = np.divide(products, squares, np.zeros(2), where=squares > 0)
    solution = np.where(alone * products == max(alone * products), alone, 0)
  return solution / scale


_NO_COSTS = {it.name: 0.0 for it in dataclasses.fields(replay.Costs)}


def _with_products(
  module: hlo.Module, known: Mapping[str, float], step_s: float
) -> replay.Costs:
  """Costs with a multiplication's cost such that a replay takes `step_s`."""

  def at(multiplication_s: float) -> replay.Costs:
    return replay.Costs(**{**known, "multiplication_s": multiplication_s})

  total = sum(
    times * amount.num_multiplications for _, amount, times in _amounts(module)
  )
  if not total:
    return at(0.0)
  low, high = 0.0, step_s / total
  for _ in range(_NUM_HALVINGS):
    middle = (low + high) / 2
    if replay.step_s(module, at(middle)) < step_s:
      low = middle
    else:
      high = middle
  return at(high)


def without_trace(module: hlo.Module, step_s: float) -> replay.Costs:
  """Costs for ranking, as if collectives were half of a step."""
  num_bytes = num_arrays = 0
  for _, amount, times in _amounts(module):
    if amount.kind == "collective":
      num_bytes += times * amount.num_bytes
      num_arrays += times * amount.num_arrays
  array_s, network_byte_s = split(num_arrays, num_bytes, step_s * _MOVING_SHARE)
  known = _NO_COSTS | {"array_s": array_s, "network_byte_s": network_byte_s}
  return _with_products(module, known, step_s)
