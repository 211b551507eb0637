# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Train steps for benchmarks: published models in Flax, and perceptrons."""
