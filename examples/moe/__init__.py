# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Mixture of Experts, trained on bytes of text with expert parallelism."""
