# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Memory of a schedule: XLA's limit, the peak, and rematerialization.

XLA's scheduler and the rematerialization after it use the same limit
(GetSchedulerMemoryLimit in xla/service/gpu/gpu_hlo_schedule.cc):

    limit = (base - arguments and results) * slop factor

For ahead-of-time compiles, the base is 80 % of the device's memory. The peak is
the largest sum of live buffers. A buffer is live from the first to the last
instruction that touches it, a computation's parameters and result all the time,
and buffers of a loop's body while it runs. This estimate is good enough to
compare orders of a module.

If a schedule's peak exceeds the limit, XLA recomputes some values instead of
keeping them (HloRematerialization in xla/service/gpu/gpu_compiler.cc). Our
passes see the schedule before that.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
import math
import re

from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import aliasing

# Default of xla_gpu_memory_limit_slop_factor (xla/debug_options_flags.cc).
DEFAULT_SLOP_PERCENT = 95

_BASE_PERCENT = 80


def limit_bytes(
  module: hlo.Module,
  device_bytes: int,
  slop_percent: float = DEFAULT_SLOP_PERCENT,
) -> float:
  """The limit for a module compiled ahead of time.

  Negative if arguments and results exceed the base.
  """
  # An argument that is donated to a result counts once. XLA counts arrays in
  # host memory, too.
  result = module.entry.root.shape
  interface_bytes = hlo.shape_bytes(result)
  interface_bytes += sum(
    hlo.shape_bytes(p.shape) for p in module.entry.parameters
  )
  for alias in module.proto.input_output_alias.entries:
    shape = result
    for index in alias.output_shape_index:
      shape = shape.tuple_shapes[index]
    interface_bytes -= hlo.shape_bytes(shape)
  base_bytes = device_bytes * _BASE_PERCENT // 100
  return (base_bytes - interface_bytes) * slop_percent / 100


# First and last position in a schedule.
_Span = tuple[int, int]


def peak_bytes(module: hlo.Module, buffers: aliasing.Buffers) -> int:
  """The estimated peak of a scheduled module, with arguments and results.

  `buffers` may be of a module with the same instructions in another order.
  """
  entry = module.entry
  elsewhere = _interface(buffers, entry) | _in_results(buffers, entry)
  held = held_bytes(module, buffers)
  return held + _peak_inside(module, buffers, entry, elsewhere)


def held_bytes(module: hlo.Module, buffers: aliasing.Buffers) -> int:
  """Bytes of arguments and results, which are live all the time.

  A result to which an argument is donated is in the argument's buffer.
  Arguments never share a buffer, but `buffers` may merge them, because a kernel
  that updates several of one size may write each into any.
  """
  arguments = module.entry.parameters
  held = sum(sum(buffers.sizes_bytes(argument)) for argument in arguments)
  return held + sum(
    buffers.num_bytes[b] for b in _written(buffers, module.entry)
  )


def _peak_inside(
  module: hlo.Module,
  buffers: aliasing.Buffers,
  computation: hlo.Computation,
  elsewhere: frozenset[int],
) -> int:
  """The peak of a computation, without the buffers in `elsewhere`."""
  begins: dict[int, int] = {}
  ends: dict[int, int] = {}
  for buffer, (first, last) in _spans(buffers, computation).items():
    if buffer not in elsewhere:
      size = buffers.num_bytes[buffer]
      begins[first] = begins.get(first, 0) + size
      ends[last] = ends.get(last, 0) + size
  peak = live = 0
  for position, instruction in enumerate(computation.instructions):
    live += begins.get(position, 0)
    nested = max(
      (
        _peak_inside(module, buffers, callee, _interface(buffers, callee))
        for callee, _ in module.callees(instruction)
        if instruction.opcode != "async-start"
      ),
      default=0,
    )
    peak = max(peak, live + nested)
    live -= ends.get(position, 0)
  return peak


def _in_results(
  buffers: aliasing.Buffers, entry: hlo.Computation
) -> frozenset[int]:
  """Buffers that share the memory of results before these are written.

  If no input is donated to a result, other arrays use its buffer until the
  result is written, large ones first (MaybeAssignBuffer in
  xla/service/buffer_assignment.cc). XLA takes arrays of equal size in an order
  of the graph; ordering them by last use comes closest to its peaks.
  """
  spans, num_bytes = _spans(buffers, entry), buffers.num_bytes
  end = len(entry.instructions)
  written = _written(buffers, entry)
  taken = {b: [(spans[b][0], end)] for b in written if b in spans}
  results = sorted(taken, key=num_bytes.__getitem__)
  sizes = [num_bytes[result] for result in results]
  placed: set[int] = set()
  for buffer in sorted(
    spans.keys() - _interface(buffers, entry),
    key=lambda it: (num_bytes[it], spans[it][1]),
    reverse=True,
  ):
    for result in results[bisect.bisect_left(sizes, num_bytes[buffer]) :]:
      if _is_free(taken[result], spans[buffer]):
        bisect.insort(taken[result], spans[buffer])
        placed.add(buffer)
        break
  return frozenset(placed)


def _is_free(taken: Sequence[_Span], span: _Span) -> bool:
  """Whether a span is disjoint from all of `taken`, which are sorted."""
  i = bisect.bisect(taken, span)
  is_before = i == len(taken) or span[1] < taken[i][0]
  return is_before and (i == 0 or taken[i - 1][1] < span[0])


def _spans(
  buffers: aliasing.Buffers, computation: hlo.Computation
) -> dict[int, _Span]:
  """The first and last position at which each buffer is touched."""
  spans: dict[int, _Span] = {}
  for position, instruction in enumerate(computation.instructions):
    for buffer in buffers.access(computation, instruction).all:
      spans[buffer] = (spans.get(buffer, (position,))[0], position)
  return spans


def _interface(
  buffers: aliasing.Buffers, computation: hlo.Computation
) -> frozenset[int]:
  """The buffers of a computation's parameters and of its result."""
  touched = (*computation.parameters, computation.root)
  return frozenset(buffer for i in touched for buffer in buffers.of(i))


def _written(
  buffers: aliasing.Buffers, computation: hlo.Computation
) -> set[int]:
  """The buffers of a computation's result, without those of parameters."""
  parameters = computation.parameters
  return set(buffers.of(computation.root)) - {
    buffer for parameter in parameters for buffer in buffers.of(parameter)
  }


# A schedule whose peak exceeds this share of the limit counts as short of
# memory, because the peak is an estimate. For a step compiled for GPUs with
# less and less memory, the estimate was 1.4 % above XLA's own peak, and XLA
# began to recompute when its limit was 1 to 3 % below the estimate.
_SHORT_FROM = 0.95


# The suffix that XLA uses if memory is short, as in dot.remat2 and
# copy.remat_compressed. Regardless of memory, it names cheap arrays
# .rematerialized when it copies them for each reader (jaxlib 0.12 from
# optimization level O1 on).
_AGAIN = re.compile(r"\.remat(?![a-z])")


def recomputed(module: hlo.Module) -> tuple[str, ...]:
  """Names of the instructions that XLA reruns, once per occurrence."""
  return tuple(
    instruction.name
    for computation_id in module.executions
    for instruction in module.computations[computation_id].instructions
    if _AGAIN.search(instruction.name)
  )


def is_short_of_memory(
  module: hlo.Module,
  device_bytes: int,
  slop_percent: float = DEFAULT_SLOP_PERCENT,
  *,
  pool_bytes: float = math.inf,
) -> bool:
  """Whether XLA is likely to recompute values of a schedule.

  Also true if the step may need more than `pool_bytes`. The module is scheduled
  but not yet rematerialized.
  """
  limit = limit_bytes(module, device_bytes, slop_percent)
  # Arguments reduce the limit and also count in the peak, because
  # rematerialization tracks them like all other values. The scheduler does not.
  peak = peak_bytes(module, aliasing.of(module))
  return peak > _SHORT_FROM * min(limit, pool_bytes)
