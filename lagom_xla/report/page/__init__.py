# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The report page: what was found of a step, as one HTML file for people."""
