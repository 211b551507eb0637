# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Objects that commands print with --format=json, a module per command.

Dataclasses, from which their schemas follow. Those of explain, report, whatif
and doctor are what these commands found, such as `explain.Explanation`.
"""
