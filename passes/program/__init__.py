# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Programs rewritten before XLA sees them: strands and slices.

StableHLO in, StableHLO out, between lowering and compiling. No hook of XLA's is
needed, donation is kept, and the same pass serves every version of JAX, ahead
of time and live.
"""
