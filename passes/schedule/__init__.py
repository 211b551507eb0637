# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Orders of a schedule: found for two strands, proved safe, kept as data.

`aliasing` finds which arrays may share a buffer, and who reads and writes it;
`memory` estimates how much is alive at the peak. `orders` uses both to prove an
order safe, and stores it by the names of instructions, so that it outlives its
compile. `alignment` finds an order for two strands of a loop.
"""
