# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Slices: chains of collectives and products, cut in pieces.

`shardings` says how the partitioner will see each value, and `implied` which
collectives it will make of that. From each collective, `reach` goes on along
dimensions that operations leave free, and `chains` lists what came of it. `cut`
writes a chain anew, piece by piece.
"""
