# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The effect of orders: where instructions moved, and what that gains."""

from __future__ import annotations

from lagom_xla.costs import step as step_lib
from lagom_xla.passes.schedule import orders as orders_lib
from lagom_xla.verify import effects


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
    evidence=(
      f"{before.total_exposed_us / 1e3:,.2f} ms of collectives exposed became"
      f" {after.total_exposed_us / 1e3:,.2f} ms, and"
      f" {before.total_slowdown_us / 1e3:,.2f} ms that kernels lose to"
      f" collectives beside them {after.total_slowdown_us / 1e3:,.2f} ms"
      f" (predicted, the plan's NCCL settings); {seen.evidence}"
    ),
  )
