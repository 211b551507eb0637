# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The work of a kernel: what it computes and moves, read from its HLO.

`kernels.py` makes its record of that: `matrix_products` and `attention` are
what it multiplies, and `arithmetic` in which numbers; `memory_access` is what
it reads and writes, by what its results depend on (`wanted_elements`), in which
order (`access_pattern`), with how many threads, in scatters, or as no kernel at
all (`memcpys`).
"""
