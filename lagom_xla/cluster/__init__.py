# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Clusters: nodes, GPUs and networks, with the source of each figure.

from lagom_xla import cluster

cluster.parse("16x8xh100").gpu.hbm_gbps
"""

from __future__ import annotations

from lagom_xla.cluster.cluster import Calibration as Calibration
from lagom_xla.cluster.cluster import Cluster as Cluster
from lagom_xla.cluster.cluster import Factors as Factors
from lagom_xla.cluster.cluster import Gpu as Gpu
from lagom_xla.cluster.cluster import HostLink as HostLink
from lagom_xla.cluster.cluster import Node as Node
from lagom_xla.cluster.cluster import NvLink as NvLink
from lagom_xla.cluster.read import cluster_names as cluster_names
from lagom_xla.cluster.read import device_name as device_name
from lagom_xla.cluster.read import from_dict as from_dict
from lagom_xla.cluster.read import gpu_names as gpu_names
from lagom_xla.cluster.read import machine_names as machine_names
from lagom_xla.cluster.read import of_devices as of_devices
from lagom_xla.cluster.read import parse as parse
from lagom_xla.cluster.read import schema as schema
