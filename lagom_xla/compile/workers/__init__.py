# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Workers: processes that compile, so that an abort in XLA ends only them."""
