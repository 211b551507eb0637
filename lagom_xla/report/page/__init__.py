# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The report page: what was found of a step, as one HTML file for people.

`telling` makes a `story`, plain data that `kept` writes beside a plan:
`drawing` has its pictures of a step, `losses` the collectives that cost most,
and `settings` a sentence for each part of the plan. `rendering` makes HTML of a
story, with the page's template, style and script inside.
"""
