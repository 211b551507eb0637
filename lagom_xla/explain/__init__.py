# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reasons why collectives are exposed, computed from schedule and replay."""
