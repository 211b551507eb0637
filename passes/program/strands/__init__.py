# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Strands: two micro-batches whose passes share loops.

`merge` makes one loop of two. Which two those are, of two micro-batches that a
program writes side by side, is the choice of `loop_pairs`. Where a program
loops over micro-batches, `rotate` puts a backward pass beside the next forward
pass, by its `stages`, or two trips beside each other. `keys` keeps XLA from
combining what two strands communicate.
"""
