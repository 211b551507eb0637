# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports of results: for people and for programs.

`results`, `clusters` and `calibration` define the output of --format=json.
`terminal` shows an inspection, a tuning, a verification or a profile, with
`tables` for -v. `explanations` shows an explanation. `page` writes HTML pages,
and `trace` writes files for Perfetto. All of them take the words for settings
and candidates from `settings`.
"""
