# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The cost model's errors, the searchers' worth, and the speed of lagom_xla."""
