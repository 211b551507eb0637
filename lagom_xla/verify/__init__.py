# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What each part of a plan does to a step, seen and not assumed.

`verification` leaves each part out, and `effects` says what that changes.
"""
