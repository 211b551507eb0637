# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The number of channels of a speed that fit a node, and the best of these.

The loop over speeds is ncclTopoCompute's (graph/search.cc); how many channels
the links and adapters of a regular node carry has a closed form.
"""

from __future__ import annotations

from collections.abc import Callable
import math

from lagom_xla.costs.nccl import topology

MAX_CHANNELS = 64  # MAXCHANNELS, device.h
EPSILON = 1e-6  # NCCL rounds what is left of links to 0.001 GB/s.


def best(
  node: topology.Node,
  fits: Callable[[float], int],
  *,
  total_gbps: float,
  most: int,
  least: int = 1,
  prefers_more: bool = False,
) -> tuple[int, float]:
  """The first pass of ncclTopoCompute: the largest count times speed.

  Args:
    node: the node.
    fits: how many channels of a speed there can be.
    total_gbps: caps `least` channels of the first speed tried.
    most: enough channels to stop.
    least: too few below this.
    prefers_more: whether more channels win even at a smaller product.

  Returns:
    The channels and their speed; NCCL's fallback, one of 0.1 GB/s, where
    nothing fits.
  """
  speeds, first = node.speeds, 0
  while first < len(speeds) - 1 and (
    speeds[first] > node.max_gbps + EPSILON
    or speeds[first] * least > total_gbps + EPSILON
  ):
    first += 1
  count, gbps = 0, 0.0
  for speed in speeds[first:]:
    if count and speed / gbps <= 0.49:
      break
    found = fits(speed)
    if found >= least and (
      found * speed > count * gbps or (prefers_more and found > count)
    ):
      count, gbps = found, speed
      if count == most:
        break
    if count * gbps >= node.total_gbps - EPSILON:
      break
  return (count, gbps) if count else (1, 0.1)


def split(
  node: topology.Node, count: int, gbps: float, most: int
) -> tuple[int, float]:
  """Fast channels become two of half the speed (ncclTopoDupChannels)."""
  if gbps < 25 or (node.capability > 80 and gbps < 50 and count > 4):
    return count, gbps
  doubled = min(2 * count, most)
  return doubled, gbps / math.ceil(doubled / count)


def links_carry(
  node: topology.Node,
  count: int,
  gbps: float,
  *,
  rotates: bool,
  relayed_gbps: float = 0.0,
) -> bool:
  """Whether the links between GPUs carry that many rings or trees.

  Args:
    node: the node.
    count: rings or trees.
    gbps: rate of each.
    rotates: whether they end at GPUs in turn; the last GPU of each sends only
      to an adapter, or not at all.
    relayed_gbps: what one GPU sends by way of another to reach an adapter.
  """
  if node.num_gpus == 1:
    return True
  sends = count * gbps * node.pcie_overhead
  if rotates and node.crosses_nodes:
    sends = (count - count // node.num_gpus) * gbps * node.pcie_overhead
  elif rotates:
    turns = sends * (node.num_gpus - 1) / node.num_gpus
    # Trees of more than two GPUs are found only with some room to spare.
    sends = min(sends, turns / (0.9 if node.num_gpus > 2 else 1.0))
  if not node.over_nvlink and count * gbps > node.socket_gbps + EPSILON:
    return False
  # On PCIe half of what is relayed already passes a link of its own.
  relayed = relayed_gbps if node.over_nvlink else relayed_gbps / 2
  return sends + relayed <= node.link_gbps + EPSILON


def nic_channels(node: topology.Node, gbps: float) -> int:
  """How many channels of that rate the adapters carry, and their GPUs."""
  if not node.crosses_nodes:
    return MAX_CHANNELS
  return min(
    node.num_nics * whole(node.nic_gbps / gbps),
    node.num_gpus * whole(node.pcie_gbps / gbps),
  )


def whole(ratio: float) -> int:
  """A ratio of rates rounded down, unless it is next to whole."""
  return int(ratio + EPSILON)
