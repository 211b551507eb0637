# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Gains of strands and slices: predicted on GPUs, measured on CPUs."""
