# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Profiles of running steps: from jax.profiler's traces to measured costs.

`xspace` reads what the profiler wrote, `trace` has it as plain data on one
clock, `steps` joins it to the scheduled module, `instances` matches the
collectives of different ranks, `profile` says what each part took, alone and
beside what, and `overlaps` who waited for whom. `costing` makes of it the
costs that `costs.measured` prices steps by.
"""

from __future__ import annotations
