# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Slices: chains of collectives and products, cut in pieces.

`partitioning` says how XLA's partitioner will see each value, and which
collectives it will make of that. From each collective, `chains` goes on along
dimensions that operations leave free. `cut` writes a chain anew, piece by
piece.
"""
