# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The evaluation of the Lagom paper (arXiv 2602.20656), predicted."""
