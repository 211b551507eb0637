# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles: a train step in, the HLO module that XLA makes of it out.

What a user names (loading/) is a target (targets/). Its program is lowered
(lowering/) and goes with a config to XLA (runs/), in another process where that
is possible (workers/), from the module that another left fused (fused/) or
from the beginning, through as much of XLA as is needed (xla/).
"""
