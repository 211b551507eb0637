# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The linter of XLA_FLAGS, and the options of the installed XLA."""
