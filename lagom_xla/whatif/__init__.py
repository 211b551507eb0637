# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What-if: one target on many clusters, node counts and network rates.

`cases` makes the clusters of a command line. `comparing` compiles the target
once for all clusters that share a schedule, and costs it on each. The result is
a `comparison`, plain data with findings, which `shown` prints and draws.
"""
