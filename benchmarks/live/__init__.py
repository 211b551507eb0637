# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tuning while it trains, by wall clock: `lagom_xla.tune` on two shaped hosts.

Each case is a user's training loop, in a JAX process on each of two hosts with
a slow link between them. What the loop adopts is then measured against the step
as XLA compiles it by default.
"""
