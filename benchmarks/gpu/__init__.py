# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measurements on one NVIDIA GPU, in one call of nine minutes."""
