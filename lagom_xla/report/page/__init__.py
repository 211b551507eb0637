# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The report page: what was found about a step, as one HTML file.

`contents` makes a `report`: plain data that is kept beside a plan. The page is
rendered from it, with its template, style and script inside.
"""
