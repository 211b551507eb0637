# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Settings that NCCL does not choose: limits, and errors of their predictions.

*Limits.* A communicator has a fixed maximum of channels: maxCTAs of
ncclConfig_t, which NCCL_MAX_CTAS overrides (src/init.cc). NCCL ignores it in
the choice of algorithm and protocol. For sends and receives, NCCL rounds it up
to a power of two (ncclTopoComputeP2pChannels in src/graph/paths.cc). One option
of XLA sets it for the communicators of collectives, including all-to-all, and
another for those of permutes, sends and receives (CommunicationId(1) in
xla/backends/gpu/runtime/).

*Few channels.* The rate of a channel among few was measured for all-reduces
only (benchmarks/data/channels). If a channel is f times slower than predicted,
NC channels take the predicted time of NC / f channels: much longer if channels
bound the collective, no longer if links do.

*Other settings.* Predictions of algorithms and protocols that NCCL does not
choose are much less certain if latency dominates than if bandwidth does. Each
step pays the latency and moves one rank's part, so the size of the part tells
which dominates. No measurement has chunks other than NCCL's. So a scenario with
errors in other settings removes the gain of smaller chunks in time and in
memory bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.costs.nccl import launch

# (key, its setting, most channels) -> the setting under that limit.
Limit = Callable[[collective_lib.TuningKey, nccl.Setting, int], nccl.Setting]

# Sends and receives, each half a permute, also have keys of this kind.
_IN_OTHER_COMMUNICATORS = "collective-permute"


def by_variable(
  key: collective_lib.TuningKey, setting: nccl.Setting, max_channels: int
) -> nccl.Setting:
  """A setting under NCCL_MAX_CTAS, which applies to every communicator."""
  if key.kind in nccl.SEND_RECV:
    max_channels = 1 << (max_channels - 1).bit_length()
  if setting.num_channels <= max_channels:
    return setting
  return dataclasses.replace(setting, num_channels=max_channels)


def by_other_variable(
  key: collective_lib.TuningKey, setting: nccl.Setting, max_channels: int
) -> nccl.Setting:
  """A setting under NCCL_MAX_NCHANNELS, which NVLS ignores (nvls.cc)."""
  if setting.algorithm.startswith("nvls"):
    return setting
  return by_variable(key, setting, max_channels)


def by_option(
  key: collective_lib.TuningKey, setting: nccl.Setting, max_channels: int
) -> nccl.Setting:
  """A setting under XLA's option for the communicators of collectives."""
  if key.kind == _IN_OTHER_COMMUNICATORS:
    return setting
  return by_variable(key, setting, max_channels)


# Least bytes per rank of a long part. With ring and Simple forced on 8 B300s,
# predictions are about right from 32 MiB on (nccl_tests/sweeps.csv of --data).
LONG_PART_BYTES = 4 * 2**20

Predict = Callable[
  [collective_lib.TuningKey, nccl.Setting], collective_lib.CollectiveCost
]


def has_long_parts(key: collective_lib.TuningKey) -> bool:
  """Whether bandwidth, not latency, dominates the choice of algorithm."""
  return key.num_bytes >= LONG_PART_BYTES * key.num_ranks


def is_other(setting: nccl.Setting, default: nccl.Setting) -> bool:
  """Whether the settings differ in more than the number of channels."""
  return setting != dataclasses.replace(
    default, num_channels=setting.num_channels
  )


def with_own_chunk(
  key: collective_lib.TuningKey,
  setting: nccl.Setting,
  default: nccl.Setting,
  cluster: cluster_lib.Cluster,
) -> nccl.Setting:
  """The setting with a chunk no smaller than NCCL's own."""
  pair = setting.algorithm, setting.protocol
  if pair == (default.algorithm, default.protocol):
    own_bytes = default.chunk_bytes
  else:
    share_bytes = key.num_bytes // setting.num_channels
    own_bytes = launch.chunk_bytes(
      cluster, key.communicator, key.kind, share_bytes, *pair
    )
  return dataclasses.replace(
    setting, chunk_bytes=max(setting.chunk_bytes, own_bytes)
  )


def has_few_channels(
  key: collective_lib.TuningKey,
  setting: nccl.Setting,
  default: nccl.Setting,
  cluster: cluster_lib.Cluster,
) -> bool:
  """Whether a setting has fewer channels than NCCL gives its algorithm."""
  if setting.algorithm == default.algorithm:
    return setting.num_channels < default.num_channels
  return setting.num_channels < nccl.max_channels(
    cluster, key.communicator, setting.algorithm
  )


def with_slow_channels_us(
  factor: float,
  key: collective_lib.TuningKey,
  setting: nccl.Setting,
  predict: Predict,
) -> float:
  """Time with 1 / factor of the channels, by linear interpolation of rates."""
  num_channels = setting.num_channels / factor
  fewer = math.floor(num_channels)

  def rate(number: int) -> float:
    if not number:
      return 0.0
    at = dataclasses.replace(setting, num_channels=number)
    time_us = predict(key, at).time_us
    return 1 / time_us if time_us else math.inf

  share = num_channels - fewer
  between = (1 - share) * rate(fewer)
  if share:
    between += share * rate(fewer + 1)
  # Predictions may be slower with more channels, but slow channels never gain.
  return max(1 / between, predict(key, setting).time_us)
