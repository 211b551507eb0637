# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The replay of a schedule: when kernels and collectives run and wait."""
