# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Strands: two micro-batches whose passes share loops.

`merge` makes one loop of two, which `loop_pairs` chooses if a program writes
micro-batches side by side. If a program loops over micro-batches, `rotate` puts
a backward pass beside the next forward pass, using the trip's `stages`, or two
trips beside each other. `keys` keeps XLA from combining collectives of two
strands.
"""
