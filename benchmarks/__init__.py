# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""How right the cost model is, and how fast lagom_xla runs."""
