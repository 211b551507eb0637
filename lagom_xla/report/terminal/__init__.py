# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports for the terminal: the verdict first, in 40 lines of 80 columns.

`terminal` shows an inspection, a tuning or a verification, each as sections of
a `screen`: the `verdict`, what is `exposed`, the `settings` of a plan and
`notes`. `profile_tables` shows a profile, and `explanations` an explanation.
"""
