# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Objects that inspect, tune, verify and profile print with --format=json.

Dataclasses, from which their schemas follow; as_json.py writes them. What other
commands print is what they found, such as `explain.Explanation`.
"""
