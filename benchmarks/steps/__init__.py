# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measured steps: their timelines, and the model's errors on them."""
