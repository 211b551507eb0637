# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Calibration of a cluster on one's own machine, from nccl-tests.

`log` reads what the programs print; `samples` puts it beside the model's
predictions, and `fit` finds the few figures that are a site's own.
`calibration` is all of that in one call, and writes the cluster's file.
"""

from __future__ import annotations
