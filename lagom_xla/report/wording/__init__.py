# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Wording: what terminal, page, JSON and traces say in the same words."""
