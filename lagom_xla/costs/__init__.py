# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The costs of kernels, of collectives, and of their overlap."""
