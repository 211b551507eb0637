# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fabrics between nodes: what each takes beyond NCCL's model of a network.

fitted/network.json has the figures, with their units and how they were found;
benchmarks/collectives/fit_networks.py fits them to rows of nccl-tests.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import re

_FITTED = pathlib.Path(__file__).parents[1] / "fitted" / "network.json"

# NCCL's search counts on the next of its speeds: on 12, 24 and 48 GB/s for
# adapters of 12.5, 25 and 50 (sm90SpeedArrayInter, src/graph/search.cc).
MOST_EFFICIENCY = 25 / 24


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Fabric:
  """One fabric with its transport, as NCCL's proxy threads drive it.

  Attributes:
    hop_us: latency of a hop between nodes, beyond the one that NCCL assumes.
    message_us: what a connection takes for a message, however short: posting
      it, matching it, and learning that it came.
    flush_us: the same added for Simple, whose receiver reads back from the GPU
      before it trusts what the adapter wrote there.
    message_gbps: what a message moves at alone, in and out of staging buffers.
    nic_efficiency: what is reached of an adapter, over what NCCL counts on
      (which is up to 4 % less than its data sheet says, see MOST_EFFICIENCY).
    pcie_efficiency: share of what NCCL counts on for the PCIe link between GPU
      and adapter.
    exchange_efficiency: what sends and receives reach of that.
    peer_us: what an exchange takes for each peer on another node.
  """

  hop_us: float
  message_us: float
  flush_us: float
  message_gbps: float
  nic_efficiency: float
  pcie_efficiency: float = 1.0
  exchange_efficiency: float = 1.0
  peer_us: float = 0.0


@functools.cache
def fitted_fabric(name: str) -> Fabric:
  """The fitted figures of a fabric."""
  raw = json.loads(_FITTED.read_text(encoding="utf-8"))
  return Fabric(**raw["fabrics"][name])


@functools.cache
def most_measured_nodes(name: str) -> int:
  """On how many nodes of a fabric its figures were measured, at most.

  A system is named after its nodes, as "xx1-N10G8". 0 where there is none.
  """
  raw = json.loads(_FITTED.read_text(encoding="utf-8"))
  found = (re.search(r"-N(\d+)", system) for system in raw["systems"][name])
  return max((int(nodes[1]) for nodes in found if nodes), default=0)
