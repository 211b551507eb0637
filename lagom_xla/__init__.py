# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tunes how the collectives of a JAX train step share its GPUs."""

from __future__ import annotations

__version__ = "0.1.0"
