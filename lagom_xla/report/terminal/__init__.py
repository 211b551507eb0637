# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports for the terminal: the verdict first, in 40 lines of 80 columns."""
