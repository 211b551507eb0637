# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Traces for ui.perfetto.dev: predicted and measured steps, side by side."""
