# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Orders of a schedule: found for two strands, proved safe, kept as data."""
