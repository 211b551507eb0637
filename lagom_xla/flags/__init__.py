# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Linter of XLA_FLAGS, and XLA's options as the installed jaxlib has them."""
