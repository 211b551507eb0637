# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Latency of one algorithm and protocol as NCCL has it: base plus steps.

The constants are those of NCCL 2.32.3 (ncclTunerConstantsDefaults in its
library); the equations are in src/tuning/{ring,tree,nvls,pat}.cc of NCCL 2.31
and give the numbers of 2.32.3, with one difference noted below.
"""

from __future__ import annotations

import math

from lagom_xla.costs.nccl import terms as terms_lib

# Latencies in us, by protocol in the order of `terms.PROTOCOLS`: of a launch,
# and of one step over NVLink, PCIe and the network.
_BASE_US = {
  "tree": (6.8, 14.0, 8.4),
  "ring": (6.6, 14.0, 8.4),
  "nvls": (0.0, 0.0, 0.0),
  "nvlstree": (0.0, 0.0, 0.0),
  "pat": (8.0, 8.0, 8.0),
}
_STEP_US = {
  "nvlink": {
    "tree": (0.6, 1.25, 4.0),
    "ring": (0.6, 1.9, 3.4),
    "nvls": (0.0, 0.0, 25.0),
    "nvlstree": (0.0, 0.0, 25.0),
  },
  "pcie": {"tree": (1.0, 1.9, 4.0), "ring": (1.0, 2.5, 5.7)},
  "net": {
    "tree": (5.0, 8.5, 14.0),
    "ring": (2.7, 4.0, 14.0),
    "nvls": (0.0, 0.0, 18.0),
    "nvlstree": (0.0, 0.0, 20.9),
    "pat": (0.0, 0.0, 14.0),
  },
}


def _step_us(
  terms: terms_lib.Terms, algorithm: str, protocol: str, *, net: bool
) -> float:
  graph = {"tree": terms.graphs.tree, "ring": terms.graphs.ring}.get(
    algorithm, terms.graphs.nvls
  )
  over_nvlink = graph is not None and graph.over_nvlink
  link = "net" if net else ("nvlink" if over_nvlink else "pcie")
  return _STEP_US[link][algorithm][terms_lib.PROTOCOLS.index(protocol)]


def hop_us(terms: terms_lib.Terms, protocol: str, *, net: bool) -> float:
  """A launch and one step, as of a ring."""
  base = _BASE_US["ring"][terms_lib.PROTOCOLS.index(protocol)]
  return base + _step_us(terms, "ring", protocol, net=net)


def latency_us(terms: terms_lib.Terms, algorithm: str, protocol: str) -> float:
  """The latency of one operation, before what depends on its size."""
  nodes, per_node = (
    terms.communicator.num_nodes,
    terms.communicator.ranks_per_node,
  )
  base = _BASE_US[algorithm][terms_lib.PROTOCOLS.index(protocol)]
  levels = int(math.log2(nodes))
  several = nodes > 1
  inter = _step_us(terms, algorithm, protocol, net=True)
  if algorithm == "pat":
    return base + levels * inter / 3.5 + 2.8 * terms.communicator.num_ranks
  intra = _step_us(terms, algorithm, protocol, net=False)
  if algorithm == "tree":
    return base + 2 * ((per_node - 1) * intra + levels * inter)
  if algorithm == "nvls":
    return intra
  if algorithm == "nvlstree":
    return base + intra + 2 * levels * inter
  if terms.kind in terms_lib.ROOTED:
    # Over the network as in 2.30 and 2.32; 2.31 counts steps within a node.
    if terms.graphs.ring.same_channels:
      return base + (inter if several else intra)
    stepper = "tree" if protocol == "simple" else "ring"
    return base + terms.num_steps * _step_us(
      terms, stepper, protocol, net=several
    )
  if per_node == 1:  # Nothing hides the network then.
    inter = _step_us(terms, "tree", protocol, net=True)
  if several:
    # Posting to the adapter (getNetOverhead), three times for Simple.
    post = 2.0 if terms.cpu_vendor == "amd" else 1.0
    intra = max(intra, post * (3 if protocol == "simple" else 1))
  num_inter = (nodes - 1) * (2 if terms.kind == "all-reduce" else 1)
  return base + (terms.num_steps - num_inter) * intra + num_inter * inter
