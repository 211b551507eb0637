# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Shaped hosts: two on one machine, joined by a slow link, for real jobs.

JAX processes in two network namespaces run real collectives beside real
compute. The link between them has a limited rate, so that there is something
to hide; and XLA:CPU hides it where a collective stands behind a product
(`benchmarks.live.cpu.behind_products`).
"""
