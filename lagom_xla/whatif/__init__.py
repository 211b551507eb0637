# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What-if: one target on many clusters, node counts and network rates.

`cases` makes the clusters of a command line. `comparing` compiles the target
once for all that share a schedule, and `costing` has its figures on each, as
rows of a `comparison`, which is plain data. `telling` completes it: `scaling`
says how the work grows, `findings` what a user should notice. `table` and
`page`, with `curves`, show it.
"""
