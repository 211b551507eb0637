# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What XLA is told: options as the installed jaxlib has them, and costs."""
