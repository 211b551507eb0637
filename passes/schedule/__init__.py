# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Orders of a schedule: found for two strands, proved safe, kept as data.

`aliasing` finds which arrays may share a buffer, and which instructions read
and write it. `memory` estimates the peak of live bytes. `orders` uses both to
prove an order safe, and stores it by the names of instructions, so that other
compiles can use it. `alignment` finds an order for two strands of a loop.
"""
