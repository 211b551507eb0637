# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Orders of a schedule: found for two strands, proved safe, kept as data.

`aliasing` says which arrays may be in one buffer, and who reads and writes it;
`memory` how much is alive at the peak. By that `orders` proves an order safe,
and names instructions, so that it outlives the compile that it is from.
`alignment` finds an order for two strands of a loop.
"""
