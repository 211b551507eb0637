# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Profiles of running steps: from jax.profiler's traces to measured costs.

    profile = profiling.read("/shared/profile")
    profiling.instruction_us("/shared/profile")["all-gather.1"]

`xplane` reads the profiler's files, and `xspace` turns those of a run into a
`trace` on one clock. `steps` joins the trace to the scheduled module, and
`instances` matches collectives across ranks. `profile` has the times of kernels
and collectives, alone and overlapped; `overlaps` has waits and slowdowns.
`costing` turns a profile into costs for `costs.measured`.
"""

from __future__ import annotations

from lagom_xla.profiling.profile import Profile as Profile
from lagom_xla.profiling.profile import instruction_us as instruction_us
from lagom_xla.profiling.profile import read as read
