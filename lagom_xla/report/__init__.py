# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports of what was found: for people and for programs.

In a terminal (terminal/, with -v tables/), as a page (page/), as JSON
(printed/) and as a trace (trace/), in the same words (wording/).
"""
