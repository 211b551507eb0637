# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Profiles of running steps: from jax.profiler's traces to measured costs.

    profile = profiling.read("/shared/profile")
    profiling.instruction_us("/shared/profile")["all-gather.1"]

`xplane` reads what the profiler wrote, and `xspace` makes of a run's files a
`trace` on one clock. `steps` joins it to the
scheduled module, `instances` matches the collectives of different ranks,
`profile` says what each part took, alone and beside what, and `overlaps` who
waited for whom. `costing` makes of it the costs that `costs.measured` prices
steps by.
"""

from __future__ import annotations

from lagom_xla.profiling.profile import Profile as Profile
from lagom_xla.profiling.profile import instruction_us as instruction_us
from lagom_xla.profiling.profile import read as read
