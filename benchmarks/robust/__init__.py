# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Replays plans with a wrong cost model, and checks ranges by measurements."""
