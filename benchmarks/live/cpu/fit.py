# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fit of a host's costs: to what a trace shows, and to the step time.

Collectives and small kernels are in the trace as long as they took. What a
multiplication costs is not, as large products run on other threads, which share
the cores with all else; it is what makes the replayed step take as long as the
one that was traced.

By default XLA:CPU reduces all gradients in one collective, which gloo runs
array by array and of which a trace shows nothing but the whole: n arrays of B
bytes took T. Any latency a and time of a byte b with n a + B b = T would do. So
both are taken to be in the range of hosts and networks that there are, as
likely in one octave as in the next, and the latency is the mean of what T
leaves possible. What is slower than that is so for its latency: an array waits
until the processes at both ends have a core, and on hosts that others use, too,
that has no bound, where links have one.

Parts and whole are of the same execution. A collective takes several times as
long in one as in the next, by when the other processes come and by who else has
the cores, and so does the step: parts of one beside the time of another would
give what is left to products, which had no part in it.
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

# An all-reduce of one number between two processes of one machine took that at
# best, of forty.
LEAST_ARRAY_S = 186e-6
# An array of 97 in one all-reduce, on two shaped hosts at a load of fourteen on
# two cores: what putting them end to end saved, by the row "many small
# gradients" at 1 Gb/s of benchmarks/live/results/live.csv.
MOST_ARRAY_S = 2.1e-3
# 4 MiB between two processes of one machine, at best; and 100 Mb/s Ethernet.
LEAST_BYTE_S = 1 / 1e9
MOST_BYTE_S = 8 / 100e6


def split(
  num_arrays: float, num_bytes: float, seconds: float
) -> tuple[float, float]:
  """Seconds of an array and of a byte that a host sends, of all collectives."""
  waited_s = _waited_s(num_arrays, num_bytes, seconds)
  return waited_s / num_arrays, (seconds - waited_s) / max(num_bytes, 1)


def _waited_s(num_arrays: float, num_bytes: float, seconds: float) -> float:
  """What of collectives' seconds was latency."""
  least_s = num_arrays * LEAST_ARRAY_S
  low = max(least_s, seconds - num_bytes * MOST_BYTE_S)
  high = min(num_arrays * MOST_ARRAY_S, seconds - num_bytes * LEAST_BYTE_S)
  if low >= high:
    # Quicker than anything known, in both to the same degree; or slower.
    is_quick = low == least_s
    quick_s = seconds * least_s / (least_s + num_bytes * LEAST_BYTE_S)
    return quick_s if is_quick else low
  # Of x, the mean: with T its density is 1 / (x (T - x)), from low to high.
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
    step_s: seconds from its first instruction to the end of its last.
    held_s: seconds that an instruction took once, by its name. A collective's
      are with what it waited for other processes.
  """

  step_s: float
  held_s: Mapping[str, float]


def usual(folder: pathlib.Path, module: hlo.Module) -> Execution:
  """The execution of median time, of the newest profile in a folder.

  Raises:
    TraceError: there is no profile, or none of that module on a CPU.
  """
  from lagom_xla import profiling  # Not in the first call of every step.

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


# Of a step, if there is no trace: where hiding gains most.
_MOVING_SHARE = 0.5
_NUM_HALVINGS = 30


def costs(module: hlo.Module, ran: Execution) -> replay.Costs:
  """The costs with which a replay of a module takes what it took.

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
      f"The trace of {module.name} has none of its collectives: trace a few of"
      " its steps."
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
  """What each instruction does, and how often it runs in a step."""
  amounts = replay.amounts(module)
  for computation_id, executions in module.executions.items():
    for instruction in module.computations[computation_id].instructions:
      if instruction.id in amounts:
        yield instruction, amounts[instruction.id], executions


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


_NO_COSTS = {it.name: 0.0 for it in dataclasses.fields(replay.Costs)}


def _with_products(
  module: hlo.Module, known: Mapping[str, float], step_s: float
) -> replay.Costs:
  """The costs with what makes a multiplication's replay take `step_s`."""

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
  """Costs to rank by, as if half of a step were for collectives."""
  num_bytes = num_arrays = 0
  for _, amount, times in _amounts(module):
    if amount.kind == "collective":
      num_bytes += times * amount.num_bytes
      num_arrays += times * amount.num_arrays
  array_s, network_byte_s = split(num_arrays, num_bytes, step_s * _MOVING_SHARE)
  known = _NO_COSTS | {"array_s": array_s, "network_byte_s": network_byte_s}
  return _with_products(module, known, step_s)
