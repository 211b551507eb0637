# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lone collectives on their links: run times under NCCL settings.

`path` has the fitted parameters, `call` what a collective sends and the rates
that bound it, `timing` the time. Other packages need only the names below.
"""

from __future__ import annotations

from lagom_xla.costs.wire.call import sent_bytes
from lagom_xla.costs.wire.path import Path
from lagom_xla.costs.wire.path import Paths
from lagom_xla.costs.wire.path import fitted
from lagom_xla.costs.wire.path import path_name
from lagom_xla.costs.wire.path import system_of
from lagom_xla.costs.wire.timing import time_us

__all__ = [
  "Path",
  "Paths",
  "fitted",
  "path_name",
  "sent_bytes",
  "system_of",
  "time_us",
]
