# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dispatch: a jitted step that runs what is chosen for each signature."""
