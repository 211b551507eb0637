# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads, analyses and rewrites HLO modules; knows nothing of tuning.

`hlo` has the module, from whatever `hlo_source` reads. `collectives`, `kernels`
(with `matrix_products` and `memory_access`) and `copies` have a record for each
thing that it runs. `overlap` finds which of these run at the same time, and
`source_lines` where in the program they come from. `registry` adds passes to a
compile. `in_compile` has our passes: one stops the compile, the others combine
(combine/) and reorder (schedule/), using `edit`. program/ rewrites StableHLO,
before XLA sees a program.
"""
