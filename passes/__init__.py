# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads, analyzes and rewrites HLO modules; knows nothing of tuning.

`hlo` is the module, which `hlo_source` reads. `collectives`, `kernels` (with
`matrix_products` and `memory_access`) and `copies` list what a module runs.
`overlap` finds which of these run at the same time, and `source_lines` their
lines in the program. `registry` adds passes to a compile. `in_compile` has our
passes: one stops the compile, the others combine (combine/) and reorder
(schedule/) with `edit`. program/ rewrites StableHLO before XLA sees it.
"""
