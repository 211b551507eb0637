# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What-if: one target on many clusters, node counts and network rates."""
