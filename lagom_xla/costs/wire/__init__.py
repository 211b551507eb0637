# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Run times of lone collectives on their links, under NCCL settings.

`path` has a collective's traffic and the fitted parameters. `timing` has its
time, and applies a site's calibration. `network` has the time between nodes.
Other packages need only these names.
"""

from __future__ import annotations

from lagom_xla.costs.wire.network import most_tree_gbps as most_tree_gbps
from lagom_xla.costs.wire.path import MOST_EFFICIENCY as MOST_EFFICIENCY
from lagom_xla.costs.wire.path import Fabric as Fabric
from lagom_xla.costs.wire.path import Path as Path
from lagom_xla.costs.wire.path import Paths as Paths
from lagom_xla.costs.wire.path import fabric_of as fabric_of
from lagom_xla.costs.wire.path import fitted as fitted
from lagom_xla.costs.wire.path import fitted_fabric as fitted_fabric
from lagom_xla.costs.wire.path import handed_on as handed_on
from lagom_xla.costs.wire.path import most_measured_nodes as most_measured_nodes
from lagom_xla.costs.wire.path import path_name as path_name
from lagom_xla.costs.wire.path import sent_bytes as sent_bytes
from lagom_xla.costs.wire.path import system_of as system_of
from lagom_xla.costs.wire.timing import calibrated_us as calibrated_us
from lagom_xla.costs.wire.timing import most_speedup as most_speedup
from lagom_xla.costs.wire.timing import time_us as time_us
