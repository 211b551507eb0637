# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Calibration of a cluster by nccl-tests on the user's own machine.

`log` reads the output of the programs, `samples` compares it with the model's
predictions, and `fit` finds a site's few figures. `calibration` does all of
that in one call, and writes the cluster's file.
"""

from __future__ import annotations
