# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A data-parallel perceptron on bytes, in Flax."""
