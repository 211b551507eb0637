# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Overhead of tuning: runs of steps under plain jit and tuned, in turns."""
