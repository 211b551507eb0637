# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs of XLA: a lowered program and a config in, a module out.

In a worker where that is possible, else in this process.
"""
