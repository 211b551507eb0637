# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Proposals on CPUs: other ways to run a step, and what each should take.

On CPUs a step's collectives are gloo's, over the hosts' own network. XLA:CPU
runs them in the order of the schedule, each on a thread that it blocks, and by
default nothing beside them. `way` says in what a step can differ, `grouping`
which gradients are reduced as one, `compiling` makes it so. `trace` and `fit`
have what the step's parts took, `network` what of a collective was latency,
`replay` foresees what they would take in another way, and `foreseen` ranks.
`ways` says what to look at first, `budget` for how long, and `proposer` does.
"""

from __future__ import annotations

from lagom_xla.live.cpu.proposer import CpuProposer as CpuProposer
