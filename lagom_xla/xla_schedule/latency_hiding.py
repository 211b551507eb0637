# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's latency-hiding scheduler: whether it made a schedule.

It is off by default and switches itself on where XLA's speed-of-light model
knows the GPU and every collective of the module (SolLatencyEstimator's
IsSupportedForModule): not before Hopper, not beside a ragged-all-to-all, a
broadcast, a send or work on the host. Which ones XLA knows changes from version
to version, so the schedule itself is asked. XLA notes the name under which the
scheduler knew an instruction in the instruction's metadata, and only there.
"""

from __future__ import annotations

from lagom_xla.passes import hlo

SCHEDULER = "xla_gpu_enable_latency_hiding_scheduler"
# The model's estimates, and with them the scheduler where it is on by itself.
ESTIMATES = "xla_gpu_enable_analytical_sol_latency_estimator"


def made(module: hlo.Module) -> bool:
  """Whether the latency-hiding scheduler made the schedule of a module."""
  return any(
    instruction.metadata.scheduling_name
    for computation in module.proto.computations
    for instruction in computation.instructions
  )
