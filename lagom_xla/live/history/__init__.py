# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""History of a tuned step: its trials, and the plans that later runs reuse."""
