# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lowered programs: steps and modules as StableHLO, and the forms of them."""
