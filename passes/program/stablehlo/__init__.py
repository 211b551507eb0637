# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""StableHLO as the passes read it: blocks, functions, loops and effects."""
