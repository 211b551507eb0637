# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The effect of orders: where instructions moved, and what that gains."""

from __future__ import annotations

from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.passes.schedule import orders as orders_lib
from lagom_xla.verify import effects

_ms = in_words.milliseconds


def effect(
  orders: orders_lib.Orders,
  configuration: step_lib.Configuration,
  without: step_lib.Step,
  with_it: step_lib.Step,
) -> effects.Effect:
  """What orders did.

  Args:
    orders: the orders.
    configuration: the NCCL setting of each of the step's tuning keys.
    without: the step in XLA's own order.
    with_it: the same step in these orders.
  """
  seen = effects.of_difference(
    "order", orders_lib.in_words(orders), without.analysis, with_it.analysis
  )
  if not seen.acted:
    return seen
  before, after = (s.timeline(configuration) for s in (without, with_it))
  return effects.Effect(
    knob=seen.knob,
    value=seen.value,
    acted=True,
    replaces="XLA's own order",
    without_us=before.step_time_us,
    with_us=after.step_time_us,
    evidence=(
      f"{_ms(before.total_exposed_us)} of collectives exposed became"
      f" {_ms(after.total_exposed_us)}, and {_ms(before.total_slowdown_us)}"
      " that kernels lose to collectives beside them"
      f" {_ms(after.total_slowdown_us)} (predicted, the plan's NCCL settings);"
      f" {seen.evidence}"
    ),
  )
