# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Targets: what is tuned, to be scheduled and compiled again and again."""
