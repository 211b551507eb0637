# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A compile with all of a plan that acts on one executable.

A cap on channels is not among it: NCCL's communicators keep that of the
executable that is the first to use them, so it is for XLA_FLAGS.
"""

from __future__ import annotations

from lagom_xla.compile import lowered
from lagom_xla.compile import scheduler_profile
from lagom_xla.compile import target as target_lib
from lagom_xla.flags import nccl_channels
from lagom_xla.plan import made_for
from lagom_xla.plan import plan as plan_lib


def compile_with(
  plan: plan_lib.Plan, target: target_lib.Target
) -> lowered.Compilation:
  """Compiles a target, to the end, with a plan that is for it, less its cap.

  Raises:
    PlanError: the plan is for something else, or a part of it is.
    ProfileError: JAX is set to replace the plan's scheduler profile.
    CompileError: XLA refuses the target or the plan.
  """
  made_for.check(plan, target)
  if plan.xla.scheduler_profile is not None:
    scheduler_profile.check_reaches_xla()
  with made_for.parts():
    return target.compile(plan.xla.without_options([nccl_channels.OPTION]))
