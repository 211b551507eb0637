# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The report page: what was found of a step, as one HTML file for people.

`contents` makes a `report`, plain data that is kept beside a plan, of which a
page is drawn, with the page's template, style and script inside.
"""
