# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Known searchers, as rivals of those in lagom_xla/search/nccl."""
