# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Idle options of a plan: those without which its schedule is the same.

A recipe is tried as it is published, for any model: some of its options are
about collectives that this step has not.
"""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses

from lagom_xla import plan as plan_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.verify import effects as effects_lib


def left_out(
  plan: plan_lib.Plan,
  target: target_lib.Target,
  effects: Iterable[effects_lib.Effect],
) -> plan_lib.Plan:
  """The plan without its idle options.

  As it was, where the schedule is not the same without all of them: one may
  stand in for another.

  Args:
    plan: the plan.
    target: what it is for.
    effects: what each part of the plan does, alone.
  """
  idle = {effect.knob for effect in effects if not effect.acted}
  kept = {n: v for n, v in plan.xla.options.items() if n not in idle}
  if len(kept) == len(plan.xla.options):
    return plan
  config = dataclasses.replace(plan.xla, options=kept)
  before, after = map(target.schedule, (plan.xla, config))
  if plan_lib.fingerprint(before) != plan_lib.fingerprint(after):
    return plan
  return dataclasses.replace(plan, xla=config)
