# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stops: Ctrl-C, SIGTERM and a time budget."""
