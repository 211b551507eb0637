# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The commands: arguments, actions and output, in one module per group."""
