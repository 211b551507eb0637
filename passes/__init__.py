# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""HLO modules read, analysed and rewritten, with nothing of tuning.

`hlo` is a module, from whatever `hlo_source` reads. Of what it runs,
`collectives`, `kernels` (by `matrix_products` and `memory_access`) and `copies`
have a record each; `overlap` says which run at the same time, and
`source_lines` where in the program they are from. `registry` adds passes to a
compile, and `in_compile` has those of ours: one stops it, the others combine
(combine/) and order (schedule/), by means of `edit`. program/ works on
StableHLO, before XLA sees a program.
"""
