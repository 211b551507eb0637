# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles: a train step in, the HLO module that XLA makes of it out."""
