# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports of results: for people and for programs.

`results`, `clusters` and `calibration` define what commands print with
--format=json. `terminal` shows an inspection, a tuning, a verification or a
profile, with `tables` for -v, and `explanations` an explanation. `page` does
the same for a browser, and `trace` for Perfetto. `settings` words what a plan
sets, and what was tried, for all of them.
"""
