# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Parts that the examples share: text, layout, step and training loop."""
