# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests tuning while a step trains, on CPUs, by measurements."""
