# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports of what was found: for people and for programs.

`results`, with `clusters` and `calibration`, has what commands print with
--format=json. `terminal` shows an inspection, a tuning, a verification or a
profile, with `tables` for -v, and `explanations` an explanation. `page` is the
same for a browser, and `trace` for Perfetto. What a plan sets, and
what was tried, is worded in `settings` for all of them.
"""
