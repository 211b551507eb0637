# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fabrics between nodes: what each takes beyond NCCL's model of InfiniBand.

fitted/network.json has the figures, with their units and how they were found;
benchmarks/fit_networks.py fits them to rows of nccl-tests.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib

_FITTED = pathlib.Path(__file__).parents[1] / "fitted" / "network.json"


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
    nic_efficiency: share of an adapter's rate that is reached.
    pcie_efficiency: share of what NCCL counts on for the PCIe link between GPU
      and adapter.
  """

  hop_us: float
  message_us: float
  flush_us: float
  message_gbps: float
  nic_efficiency: float
  pcie_efficiency: float = 1.0


@functools.cache
def fitted_fabric(name: str) -> Fabric | None:
  """The fitted figures of a fabric; None where NCCL's own model holds."""
  raw = json.loads(_FITTED.read_text(encoding="utf-8"))
  figures = raw["fabrics"][name]
  return None if figures is None else Fabric(**figures)
