# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's scheduler, combiner and pipeliner, predicted without compiling."""
