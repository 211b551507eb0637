# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Code shared by the examples: data, layout, step and training loop."""
