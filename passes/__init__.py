# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""HLO modules read, analysed and rewritten, with nothing of tuning."""
