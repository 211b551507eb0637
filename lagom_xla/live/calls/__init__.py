# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Calls of a tuned step: what training runs, and when lanes take turns."""
