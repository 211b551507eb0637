# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Forms by wall clock: two hosts on one machine, joined by a slow link.

A train step runs on two JAX processes, each in a network namespace of its own,
over gloo. The link between them has a limited rate, so that there is something
to hide; and XLA:CPU hides it once a pass has put each collective behind a
product (`behind_products`).
"""
