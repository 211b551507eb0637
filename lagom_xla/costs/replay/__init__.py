# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Replays of a schedule: when its kernels and collectives run and wait."""
