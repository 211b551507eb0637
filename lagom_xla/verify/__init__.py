# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks what each part of a plan does to a step, in compiled modules.

`verification` compiles without each part, and `effects` describes the
differences.
"""
