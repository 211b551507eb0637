# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Slices: chains of collectives and products, cut into pieces.

`partitioning` predicts how XLA's partitioner will shard each value, and which
collectives that implies. `chains` follows each collective along dimensions in
which operations are independent. `cut` rewrites a chain piece by piece.
"""
