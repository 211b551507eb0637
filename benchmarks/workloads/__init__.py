# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Train steps of published models, in Flax, for the paper's comparison."""
