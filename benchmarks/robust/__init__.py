# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans replayed with the cost model wrong, and ranges held to measurements."""
