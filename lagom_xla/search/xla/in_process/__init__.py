# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What only the process that compiles can set, searched after the options.

`stages` goes through it: forms of the program (`strands`, then `slices`, by
the `exposure` of chains), combine `groups` of what is `combinable`, scheduler
`feedback`, then orders (`alignment`).
"""
