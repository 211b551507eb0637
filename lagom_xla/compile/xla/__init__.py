# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's passes: from where a compile starts, where it ends, what it writes."""
