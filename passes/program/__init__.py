# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rewrites programs before XLA sees them: strands and slices.

The passes take and return StableHLO, between lowering and compiling. They need
no hooks in XLA, keep donation, and work the same in every version of JAX, ahead
of time and live.
"""
