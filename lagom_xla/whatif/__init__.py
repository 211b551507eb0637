# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What-if: one target on many clusters, node counts and network rates.

`cases` makes the clusters of a command line. `comparing` compiles the target
once for all that share a schedule, and costs it on each: rows of a
`comparison`, which is plain data with its findings, and is `shown`.
"""
