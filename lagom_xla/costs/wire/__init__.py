# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lone collectives on their links: run times under NCCL settings.

`path` has what a collective sends and the fitted parameters, within nodes and
between them, `timing` the time, and what a site's own measurements change in
it, `network` the time between nodes. Other packages need only these names.
"""

from __future__ import annotations

from lagom_xla.costs.wire.network import most_tree_gbps
from lagom_xla.costs.wire.path import MOST_EFFICIENCY
from lagom_xla.costs.wire.path import Fabric
from lagom_xla.costs.wire.path import Path
from lagom_xla.costs.wire.path import Paths
from lagom_xla.costs.wire.path import fitted
from lagom_xla.costs.wire.path import fitted_fabric
from lagom_xla.costs.wire.path import handed_on
from lagom_xla.costs.wire.path import most_measured_nodes
from lagom_xla.costs.wire.path import path_name
from lagom_xla.costs.wire.path import sent_bytes
from lagom_xla.costs.wire.path import system_of
from lagom_xla.costs.wire.timing import calibrated_us
from lagom_xla.costs.wire.timing import most_speedup
from lagom_xla.costs.wire.timing import time_us

__all__ = [
  "MOST_EFFICIENCY",
  "Fabric",
  "Path",
  "Paths",
  "calibrated_us",
  "fitted",
  "fitted_fabric",
  "handed_on",
  "most_measured_nodes",
  "most_speedup",
  "most_tree_gbps",
  "path_name",
  "sent_bytes",
  "system_of",
  "time_us",
]
