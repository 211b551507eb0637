# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Moves of starts and dones in a schedule, each proved safe."""
