# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tuner: from a target to a plan, the candidates and the plan's effects."""
