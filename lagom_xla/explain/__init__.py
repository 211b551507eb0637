# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reasons why collectives are exposed, computed from schedule and replay.

`parts` replays a step, finds where in its computation each collective could run
at all, and takes its exposed time apart by that, one reason after the other.
`sentences` puts them into words, and says what could be changed.
`explaining` does all of this for a step, and compares it with what a plan makes
of it; the result is an `explanation`, plain data that is kept beside a plan.
"""
