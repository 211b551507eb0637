# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What XLA's schedule would be under other choices, without compiling."""
