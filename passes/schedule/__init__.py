# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Orders of a schedule: found for two strands, proved safe, kept as data.

`leaves` numbers the arrays of a module, `sharing` says which may be in one
buffer, `aliasing` who reads and writes it, and `live_bytes` how much is alive
at the peak. By that `reordering` proves an order safe. `strands` and `units`
read a loop's body, and `alignment` finds an order for it on GPUs.
`orders` names instructions, so that an order outlives the compile that it is
from.
"""
