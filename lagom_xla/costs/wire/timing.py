# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The time of a lone collective: channels, steps and chunks.

A collective alone on its links takes a launch and then steps. Each step takes a
hop and the time of the bytes that one channel passes on in it. All algorithms
have this form:

    t = start + hops * hop + sum over steps of (part - first) / rate + fill

*Part.* The bytes that one channel passes on in a step: S / (n NC) of S bytes on
a ring of n ranks with NC channels. The threads' first round, `first` bytes,
passes within the hop.

*Rate.* One channel is one SM, which copies at most at b_ch. All channels
together reach the rate of the links, less a handshake alpha for each round of
chunks of C bytes, of which two are in flight (AutoCCL, NSDI 2025, equation 4):

    rate = min(b_ch, beta_C / NC),  beta_C = X / (alpha + X / beta),  X = 2 NC C

*Fill.* Simple passes on half a chunk at a time, and the last rank waits for the
first such slice.

A ring gathers in n - 1 steps and reduces in n - 1. A rank's own part costs a
fraction of a step more: an all-gather copies it to the output, and a
reduction's last step writes it there. The NVLink switch (NVLS) multicasts and
reduces in a single pass, after a start that grows with log2(n). Sends and
receives divide the channels among the peers. If there are more peers than
channels, a channel serves several in turn. The host posts peers one by one.

The parameters are fitted to measurements of lone collectives on NVLink
(`path`). Paths over PCIe or direct NVLinks, trees in a node, PAT and broadcasts
were not measured: they use NCCL's latencies and link rates. Channels and chunks
bound their rate as on measured paths, and the last rank waits for a first
chunk. `network` has the time between nodes.

*Calibration* adapts predictions to a machine. A prediction t(S) for S bytes has
a latency, L = t(1 byte) under the same setting, and a time for the bytes.
Factors of the machine and of the path multiply the first and divide the second:

    t = latency_factor * latency_factors[path] * L
      + (t(S) - L) / (rate_factor * rate_factors[path] * type_factors[type])

Calibration does not affect the predicted choices of NCCL, which ignores it.

Rates end in _gbps and mean 1e9 bytes per second.
"""

from __future__ import annotations

import dataclasses
import functools
import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.costs.wire import network
from lagom_xla.costs.wire import path as path_lib


def _copying_path(call: path_lib.Call, paths: path_lib.Paths) -> path_lib.Path:
  """The measured path whose channel rates the call uses."""
  families = {"p2p": "permute", "tree": "tree", "nvlstree": "nvls"}
  family = families.get(call.setting.algorithm, "ring")
  return paths[f"{family}.{call.setting.protocol}"]


def _unmeasured_us(call: path_lib.Call, paths: path_lib.Paths) -> float:
  """NCCL's predicted time, with the effects of channels and chunks added."""
  setting = call.setting
  protocol = setting.protocol
  pair = (call.cluster, call.communicator, call.kind)
  nccl_gbps = nccl.bandwidth_gbps(*pair, setting.algorithm, protocol)
  nccl_us = nccl.predicted_time_us(
    *pair, call.num_bytes, setting.algorithm, protocol
  )
  latency_us = nccl_us - call.num_bytes / (1e3 * nccl_gbps)
  path = _copying_path(call, paths)
  channel_gbps = path.channel_gbps * call.channel_scale
  wire_bytes = path_lib.sent_bytes(
    call.communicator, call.kind, call.num_bytes, setting.algorithm
  )
  round_bytes = (
    path_lib.CHUNKS_IN_FLIGHT * setting.num_channels * setting.chunk_bytes
  )
  link_gbps = nccl_gbps * wire_bytes / call.num_bytes
  handed_on = path_lib.handed_on(
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


_GATHERS = ("all-gather", "all-reduce")
_REDUCES = ("reduce-scatter", "all-reduce")
# NCCL splits a message of more chunks over twice the channels (maxPartSize,
# addP2pToPlan in src/enqueue.cc).
_UNCUT_CHUNKS = 32


def _uncalibrated_us(
  call: path_lib.Call,
  paths: path_lib.Paths | None = None,
  fabric: path_lib.Fabric | None = None,
) -> float:
  """Run time of a lone collective, without its cluster's calibration."""
  cluster, communicator = call.cluster, call.communicator
  if paths is None:
    paths = path_lib.fitted(path_lib.system_of(cluster))
  if communicator.num_nodes > 1:
    fabric = path_lib.fabric_of(cluster, fabric)
    return network.time_us(call, fabric, _copying_path(call, paths))
  if not call.is_measured:
    return _unmeasured_us(call, paths)
  path = paths[
    path_lib.path_name(cluster, communicator, call.kind, call.setting)
  ]
  if call.setting.algorithm == "p2p":
    return _exchange_us(call, path)
  if call.setting.algorithm == "nvls":
    return _switch_us(call, path)
  return _ring_us(call, path)


def _links_gbps(call: path_lib.Call, path: path_lib.Path) -> float:
  """Rate of all channels together, with this chunk (AutoCCL, equation 4)."""
  gbps = call.link_gbps * path.link_efficiency
  round_bytes = (
    path_lib.CHUNKS_IN_FLIGHT * call.num_channels * call.setting.chunk_bytes
  )
  return round_bytes / (path.handshake_us * 1e3 + round_bytes / gbps)


def _ring_us(call: path_lib.Call, path: path_lib.Path) -> float:
  num_steps = call.num_ranks - 1
  part_bytes = call.num_bytes / (call.num_ranks * call.num_channels)
  link_gbps = _links_gbps(call, path) / call.num_channels
  scale = call.channel_scale
  us = path.start_us
  own_gather_steps = path.own_gather_steps if call.kind == "all-gather" else 0.0
  for kinds, gbps, own_steps in (
    (_GATHERS, path.channel_gbps, own_gather_steps),
    (_REDUCES, path.reducing_channel_gbps, path.own_reduce_steps),
  ):
    if call.kind in kinds:
      rate = 1e3 * min(gbps * scale, link_gbps)
      step_us = max(part_bytes - path.first_bytes, 0.0) / rate
      us += num_steps * path.hop_us + (num_steps + own_steps) * step_us
  return us + _fill_us(call, path, part_bytes)


def _fill_us(
  call: path_lib.Call, path: path_lib.Path, part_bytes: float
) -> float:
  if call.setting.protocol != "simple":
    return 0.0
  slice_bytes = min(call.setting.chunk_bytes, part_bytes) / 2
  return slice_bytes / (1e3 * path.channel_gbps * call.channel_scale)


def _switch_us(call: path_lib.Call, path: path_lib.Path) -> float:
  passes = 1.0 if call.kind == "all-reduce" else 1 - 1 / call.num_ranks
  gbps = min(
    call.num_channels * path.channel_gbps * call.channel_scale,
    _links_gbps(call, path),
  )
  start_us = path.start_us + path.hop_us * math.log2(call.num_ranks)
  return start_us + passes * call.num_bytes / (1e3 * gbps)


def _exchange_us(call: path_lib.Call, path: path_lib.Path) -> float:
  num_messages = 1 if call.kind == "collective-permute" else call.num_ranks
  gbps = path.channel_gbps * call.channel_scale
  channel_bytes = _busiest_channel_bytes(call, num_messages)
  own_bytes = path.own_gather_steps * call.num_bytes / call.num_ranks
  moving_us = max(
    (channel_bytes - path.first_bytes) / (1e3 * gbps),
    (
      path_lib.sent_bytes(call.communicator, call.kind, call.num_bytes, "p2p")
      + own_bytes
    )
    / (1e3 * _links_gbps(call, path)),
  )
  # The first messages move while the host posts the others.
  late_peers = max(num_messages - path.shadowed_peers, 0.0)
  return path.start_us + max(path.hop_us * late_peers, moving_us)


def _busiest_channel_bytes(call: path_lib.Call, num_messages: int) -> float:
  """Bytes of the channel with the most messages.

  NCCL splits messages over several channels if there are more channels than
  messages, or if messages are long. Otherwise each message has one channel.
  """
  message_bytes = call.num_bytes / num_messages
  whole = num_messages >= call.num_channels > 1
  if whole and message_bytes <= _UNCUT_CHUNKS * call.setting.chunk_bytes:
    return math.ceil(num_messages / call.num_channels) * message_bytes
  return call.num_bytes / call.num_channels


def time_us(
  cluster: cluster_lib.Cluster,
  communicator: nccl.Communicator,
  kind: str,
  num_bytes: int,
  setting: nccl.Setting,
  paths: path_lib.Paths | None = None,
  fabric: path_lib.Fabric | None = None,
  *,
  reduced: str = "",
) -> float:
  """Run time of a lone collective, calibrated if its cluster is.

  Args:
    cluster: where it runs.
    communicator: its communicator.
    kind: XLA's name of the collective.
    num_bytes: size as NCCL counts it (see nccl/choice.py).
    setting: NCCL's setting.
    paths: parameters of paths; those fitted for the cluster's GPU by default.
    fabric: parameters of the network; those fitted for the cluster's fabric by
      default.
    reduced: HLO type of a reduction's elements if it is unusual in training,
      else "".

  Returns:
    Microseconds; 0 for a single rank or no bytes.

  Raises:
    ValueError: no such kind, or NCCL cannot run the setting here.
  """
  if communicator.num_ranks == 1 or not num_bytes:
    return 0.0
  call = path_lib.Call(cluster, communicator, kind, num_bytes, setting)
  us = _uncalibrated_us(call, paths, fabric)
  if cluster.calibration is None:
    return us
  factors = cluster.calibration.of(communicator.num_nodes)
  least_us = _latency_us(dataclasses.replace(call, num_bytes=1))
  path = path_lib.path_name(cluster, communicator, kind, setting)
  return calibrated_us(factors, path, us, min(least_us, us), reduced)


_latency_us = functools.lru_cache(maxsize=4096)(_uncalibrated_us)


def calibrated_us(
  factors: cluster_lib.Factors,
  path: str,
  us: float,
  latency_us: float,
  reduced: str = "",
) -> float:
  """The predicted time `us` with calibration factors applied.

  `factors` are those within a node or between nodes, `path` is from
  `path_name`, `latency_us` is the predicted time of one byte, and `reduced` the
  HLO type of a reduction's elements.
  """
  latency_factor = factors.latency_factor * factors.latency_factors.get(path, 1)
  rate_factor = factors.rate_factor * factors.rate_factors.get(path, 1)
  rate_factor *= factors.type_factors.get(reduced, 1)
  return latency_factor * latency_us + (us - latency_us) / rate_factor


def most_speedup(
  cluster: cluster_lib.Cluster, communicator: nccl.Communicator
) -> float:
  """The most by which calibration can speed up a collective; at least 1."""
  if cluster.calibration is None:
    return 1.0
  factors = cluster.calibration.of(communicator.num_nodes)
  rate = factors.rate_factor * max((1.0, *factors.rate_factors.values()))
  rate *= max((1.0, *factors.type_factors.values()))
  latency = factors.latency_factor * min(
    (1.0, *factors.latency_factors.values())
  )
  return max(1.0, rate, 1 / latency)
