# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lagom's own evaluation (arXiv 2602.20656), predicted for its clusters."""
