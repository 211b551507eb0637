# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""From a train step to the HLO module that XLA makes of it."""
