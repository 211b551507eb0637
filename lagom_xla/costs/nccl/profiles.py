# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the scripts that a cloud starts its jobs with leave NCCL to choose from.

Google's do so between nodes, for what its transports were made for:

- TCPX: NCCL_ALGO=Ring and NCCL_PROTO=Simple (google/nccl-plugin-gpudirecttcpx).
- TCPXO: each nccl-env-profile has Simple in NCCL_PROTO, some LL128, none LL
  (google/nccl-plugin-gpudirect-tcpxo, tcpxo_scripts/, at 04815d1).
"""

from __future__ import annotations

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs.nccl import topology


def allows(
  cluster: cluster_lib.Cluster,
  communicator: topology.Communicator,
  algorithm: str,
  protocol: str,
) -> bool:
  """Whether NCCL may take the pair."""
  if communicator.num_nodes == 1:
    return True
  match cluster.node.fabric:
    case "tcpx":
      return (algorithm, protocol) == ("ring", "simple")
    case "tcpxo":
      return protocol != "ll"
  return True
