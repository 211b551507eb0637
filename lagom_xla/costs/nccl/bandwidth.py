# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Bandwidth of one algorithm and protocol as NCCL has it.

Channels times the rate of one, less what the protocol costs. The constants are
those of NCCL 2.32.3 (ncclTunerConstantsDefaults in its library); the equations
are in src/tuning/{ring,tree,nvls,pat}.cc of NCCL 2.31 and give the numbers of
2.32.3. Rates end in _gbps and mean 1e9 bytes per second.
"""

from __future__ import annotations

from lagom_xla.costs.nccl import terms as terms_lib

# Caps in GB/s, for 1, 2 and more nodes. Rows by architecture: up to Volta,
# Ampere, Hopper, Blackwell. Across nodes LL's row is the CPU's: the first of
# Intel and Arm, the second of AMD.
_LL_GBPS = (
  (39.0, 39.0, 20.4),
  (87.7, 22.5, 19.0),
  (141.0, 45.0, 35.0),
  (282.4, 90.0, 70.0),
)
_RING_LL128_CHANNEL_GBPS = (20.0, 20.0, 36.7, 40.0)
_TREE_LL128_CHANNEL_GBPS = (
  (20.0, 20.0, 20.0),
  (20.0, 20.0, 20.0),
  (36.7, 36.7, 29.0),
  (55.6, 36.7, 20.0),
)
_TREE_CHANNEL_GBPS = (
  (26.5, 18.5, 10.0),
  (24.0, 23.6, 17.8),
  (38.7, 41.4, 36.0),
  (70.0, 42.8, 24.0),
)
_NVLSTREE_CHANNEL_GBPS = (
  (26.5, 18.5, 10.0),
  (24.0, 23.6, 17.8),
  (0.0, 57.7, 45.5),
  (0.0, 96.0, 80.0),
)
_NVLS_EFFICIENCY = (0.0, 0.0, 0.85, 0.74)
# What trees reach of their bandwidth at 64 B, 128 B and so on, by protocol
# (treeCorrectionFactor).
TREE_CORRECTION = tuple(
  tuple(float(share) for share in shares.split())
  for shares in (
    "1 1 1 1 .9 .8 .7 .7 .7 .7 .6 .5 .4 .4 .5 .6 .7 .8 .9 1 1 1 1 1",
    "1 1 1 1 1 .9 .8 .8 .8 .7 .6 .6 .6 .6 .6 .6 .8 .9 .9 .9 .9 1 1 1",
    ".9 .9 .9 .9 .9 .9 .9 .8 .7 .6 .6 .5 .5 .5 .5 .6 .7 .8 .7 .7 .8 .9 .9 .9",
  )
)


def bandwidth_gbps(
  terms: terms_lib.Terms, algorithm: str, protocol: str
) -> float:
  """Bytes over time of large sizes, in 1e9 bytes per second."""
  graphs, arch, scale = terms.graphs, terms.architecture, terms.scale
  ranks = terms.communicator.num_ranks
  several = terms.communicator.num_nodes > 1
  if algorithm in ("nvls", "nvlstree"):
    bus = _nvls_bandwidth(terms, algorithm)
    gathers = terms.kind in terms_lib.GATHERS
    return bus if gathers else bus * ranks / terms.num_steps
  if algorithm == "pat":
    tree = graphs.tree
    return 0.75 * tree.num_channels * min(tree.intra_gbps, tree.inter_gbps)
  ll_row = int(terms.cpu_vendor == "amd") if several else arch
  ll_gbps = _LL_GBPS[ll_row][scale]
  if algorithm == "ring":
    ring = graphs.ring
    bus = ring.num_channels * ring.inter_gbps
    if protocol == "ll":
      bus = min(ll_gbps, 0.5 * bus)
    if protocol == "ll128":
      most = ring.num_channels * _RING_LL128_CHANNEL_GBPS[arch]
      bus = min(0.92 * bus, most)
    return bus * ranks / terms.num_steps
  tree = graphs.tree
  count = tree.num_channels
  # Of two nodes NCCL counts the links within them, but not on Blackwell.
  inside = scale == 0 or (scale == 1 and terms.capability < 100)
  gbps = tree.intra_gbps if inside else tree.inter_gbps
  bus = count * min(0.92 * gbps, _TREE_CHANNEL_GBPS[arch][scale])
  if protocol == "ll":
    bus = min(bus / 3.8, ll_gbps)
  if protocol == "ll128":
    efficiency = 120 / 128 if several else 7 / 9
    bus = min(efficiency * bus, count * _TREE_LL128_CHANNEL_GBPS[arch][scale])
  return bus / 2 * (0.85 if tree.is_chain else 1.0)


def _nvls_bandwidth(terms: terms_lib.Terms, algorithm: str) -> float:
  heads = terms.graphs.nvls
  assert heads is not None  # See exists().
  per_node = terms.communicator.ranks_per_node
  intra = heads.intra_gbps * _NVLS_EFFICIENCY[terms.architecture]
  intra *= (heads.num_channels - 1) / heads.num_channels
  # An all-reduce pipelines its two halves.
  intra *= 2 if terms.kind == "all-reduce" else (per_node - 1) / per_node
  inter = heads.inter_gbps
  if algorithm == "nvlstree":
    inter *= 2 if terms.communicator.num_nodes == 2 else 1
    inter = min(inter, _NVLSTREE_CHANNEL_GBPS[terms.architecture][terms.scale])
  return heads.num_channels * min(intra, inter)
