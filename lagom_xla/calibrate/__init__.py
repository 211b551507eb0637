# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Calibration of a cluster by nccl-tests on your own machine.

`log` reads the programs' output, `samples` compares it with predictions, and
`fit` fits a site's calibration factors. `calibration` runs all three, and
writes the cluster's file.
"""

from __future__ import annotations
