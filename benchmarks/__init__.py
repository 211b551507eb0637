# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of the cost model's errors, the searches, and the code's speed."""
