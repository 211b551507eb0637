# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports of what was found: as JSON for programs, as tables for people."""
