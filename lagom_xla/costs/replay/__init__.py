# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A schedule replayed: who waits for whom, who slows whom."""
