# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Loop in the first process: what is tried next, measured, and kept."""
