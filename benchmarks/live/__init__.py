# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tuning while it trains, on CPUs: what `lagom_xla.tune` is proved by."""
