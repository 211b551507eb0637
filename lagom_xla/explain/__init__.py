# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reasons why collectives are exposed, computed from schedule and replay.

`parts` replays a step, finds where in its computation each collective could
run, and splits its exposed time by reason. `sentences` puts reasons and advice
into words. `explaining` does this for a step, and compares it with the step
under a plan. The result is an `explanation`, plain data that is kept beside a
plan.
"""
