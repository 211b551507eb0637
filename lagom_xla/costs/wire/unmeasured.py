# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The time of a lone collective in a node that no measured path describes.

Over PCIe, over direct NVLinks, and for what was not measured (trees in a node,
PAT, broadcasts), latencies are NCCL's own and so are links' rates. Channels and
chunks bound the rate as they do on measured paths (see `timing`), and the last
rank waits for a first chunk.

Rates end in _gbps and mean 1e9 bytes per second.
"""

from __future__ import annotations

from lagom_xla.costs import nccl
from lagom_xla.costs.wire import call as call_lib
from lagom_xla.costs.wire import path as path_lib


def path_of(call: call_lib.Call, paths: path_lib.Paths) -> path_lib.Path:
  """The measured path whose channels copy like the call's."""
  families = {"p2p": "permute", "tree": "tree", "nvlstree": "nvls"}
  family = families.get(call.setting.algorithm, "ring")
  return paths[f"{family}.{call.setting.protocol}"]


def time_us(call: call_lib.Call, paths: path_lib.Paths) -> float:
  """NCCL's own time, with channels and chunks added."""
  setting = call.setting
  protocol = setting.protocol
  pair = (call.cluster, call.communicator, call.kind)
  nccl_gbps = nccl.bandwidth_gbps(*pair, setting.algorithm, protocol)
  nccl_us = nccl.predicted_time_us(
    *pair, call.num_bytes, setting.algorithm, protocol
  )
  latency_us = nccl_us - call.num_bytes / (1e3 * nccl_gbps)
  path = path_of(call, paths)
  channel_gbps = path.channel_gbps * call.channel_scale
  wire_bytes = call_lib.sent_bytes(
    call.communicator, call.kind, call.num_bytes, setting.algorithm
  )
  round_bytes = (
    call_lib.CHUNKS_IN_FLIGHT * setting.num_channels * setting.chunk_bytes
  )
  link_gbps = nccl_gbps * wire_bytes / call.num_bytes
  handed_on = call_lib.handed_on(
    call.communicator, call.kind, setting.algorithm
  )
  copied_gbps = setting.num_channels * channel_gbps / handed_on
  gbps = min(
    round_bytes / (path.handshake_us * 1e3 + round_bytes / link_gbps),
    copied_gbps * wire_bytes / call.num_bytes,
  )
  part_bytes = call.num_bytes / setting.num_channels
  if setting.algorithm in ("ring", "pat") or call.kind in nccl.EXCHANGES:
    part_bytes /= call.num_ranks
  fill_us = min(setting.chunk_bytes, part_bytes) / (1e3 * channel_gbps)
  return latency_us + wire_bytes / (1e3 * gbps) + fill_us
