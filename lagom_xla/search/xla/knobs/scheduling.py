# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Values of the knobs that XLA's scheduler reads.

Which scheduler there is, what it takes kernels and collectives to cost, how
many of these it keeps in flight, and in how much memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from lagom_xla.costs import step as step_lib
from lagom_xla.search.xla import memory_slop as memory_slop_lib
from lagom_xla.search.xla.knobs import value as value_lib
from lagom_xla.xla_schedule import latency_hiding
from lagom_xla.xla_schedule import memory as memory_lib
from lagom_xla.xla_schedule import reschedule

_OVERLAP_LIMIT = "xla_gpu_experimental_parallel_collective_overlap_limit"
# XLA's speed-of-light estimates know Hopper and what came after it.
_ESTIMATED_SINCE = (9, 0)


def scheduler(step: step_lib.Step) -> Iterator[value_lib.Value]:
  """The latency-hiding scheduler, where another made the schedule."""
  if not latency_hiding.made(step.analysis.module):
    yield value_lib.Value(
      label="latency-hiding scheduler",
      options={latency_hiding.SCHEDULER: True},
      # The prediction itself schedules by the rules of that scheduler.
      changes=reschedule.Changes(),
    )


def overlap_limit(step: step_lib.Step) -> Iterator[value_lib.Value]:
  """How many collectives are in flight at once."""
  if not latency_hiding.made(step.analysis.module):
    return  # No other scheduler reads it.
  yield from map(in_flight, (2, 4))
  yield value_lib.Value(
    label="collectives started as early as possible",
    options={
      _OVERLAP_LIMIT: 4,
      "xla_gpu_experimental_collective_start_as_early_as_possible": True,
    },
  )


def in_flight(limit: int) -> value_lib.Value:
  """So many collectives in flight at once."""
  return value_lib.Value(
    label=f"{limit} collectives in flight",
    options={_OVERLAP_LIMIT: limit},
    changes=reschedule.Changes(overlap_limit=limit),
  )


def fixed_costs(step: step_lib.Step) -> Iterator[value_lib.Value]:
  """Fixed costs in place of estimates: five kernels hide any collective.

  XLA keeps them for programs that its estimates serve worse
  (SolLatencyEstimator in xla/service/gpu/model/sol_latency_estimator.cc).
  """
  is_estimated = step.cluster.gpu.compute_capability >= _ESTIMATED_SINCE
  if is_estimated and latency_hiding.made(step.analysis.module):
    yield value_lib.Value(
      label="scheduled by fixed costs",
      options={
        latency_hiding.ESTIMATES: False,
        # Without estimates XLA leaves it off by itself.
        latency_hiding.SCHEDULER: True,
      },
      is_last=True,
    )


def memory_slop(step: step_lib.Step) -> Iterator[value_lib.Value]:
  """How much memory collectives that start early may take."""
  memory = memory_lib.of(step.analysis.module, step.cluster)
  # A limit that a schedule stays far below changes nothing in it, and a higher
  # one changes only what had to heed the default, or that of XLA_FLAGS.
  is_short = memory.is_short or memory.may_heed(memory_slop_lib.percent({}))
  for percent, can_act in ((80, memory.may_heed(80)), (120, is_short)):
    if can_act:
      most_gb = memory.limit_bytes(percent) / 1e9
      yield value_lib.Value(
        label=f"schedule within {percent} % of the memory, {most_gb:,.1f} GB",
        options={memory_slop_lib.OPTION: percent},
        is_first=percent > 100,
      )
