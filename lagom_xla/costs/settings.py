# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Settings that NCCL does not choose: its limits, and what we may err in.

*Limits.* A communicator starts with the most channels that it may ever use:
maxCTAs of ncclConfig_t, which NCCL_MAX_CTAS overrules (src/init.cc). The choice
of algorithm and protocol does not know of it. For sends and receives NCCL
rounds it up to a power of two (ncclTopoComputeP2pChannels in
src/graph/paths.cc). XLA sets it by one option for the communicators of
collectives, all-to-all among them, and by another for those in which permutes,
sends and receives run (CommunicationId(1) in xla/backends/gpu/runtime/).

*Few channels.* What a channel copies where there are few is measured of
all-reduces alone (benchmarks/data/channels). A channel that takes f times as
long moves what 1 / f of a channel was thought to move, so NC channels take what
NC / f are predicted to take: much more where channels bound the collective,
nothing where links do.

*Other settings.* How an algorithm or a protocol fares that NCCL does not choose
is much less known where its latency decides than where its bandwidth does.
Latency is paid by step, and so is a rank's part of the bytes, which tells the
two apart. No row has other chunks than NCCL's: what smaller ones gain, in time
or in memory bandwidth, is lost where other settings are wrong.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.costs.nccl import launch

# A key's setting under a limit of so many channels.
Limit = Callable[[collective_lib.TuningKey, nccl.Setting, int], nccl.Setting]

# Half of each is a send and a receive, which have this kind of key, too.
_IN_OTHER_COMMUNICATORS = "collective-permute"


def by_variable(
  key: collective_lib.TuningKey, setting: nccl.Setting, max_channels: int
) -> nccl.Setting:
  """A setting under NCCL_MAX_CTAS, which holds in every communicator."""
  if key.kind in nccl.SEND_RECV:
    max_channels = 1 << (max_channels - 1).bit_length()
  if setting.num_channels <= max_channels:
    return setting
  return dataclasses.replace(setting, num_channels=max_channels)


def by_other_variable(
  key: collective_lib.TuningKey, setting: nccl.Setting, max_channels: int
) -> nccl.Setting:
  """A setting under NCCL_MAX_NCHANNELS, which NVLS does not heed (nvls.cc)."""
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


# Of a rank's part: 32 MiB among the 8 ranks of that sweep.
LONG_PART_BYTES = 4 * 2**20

Predict = Callable[
  [collective_lib.TuningKey, nccl.Setting], collective_lib.CollectiveCost
]


def has_long_parts(key: collective_lib.TuningKey) -> bool:
  """Whether bandwidth decides between algorithms, not latency."""
  return key.num_bytes >= LONG_PART_BYTES * key.num_ranks


def is_other(setting: nccl.Setting, default: nccl.Setting) -> bool:
  """Whether more than the number of channels differs."""
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
  """Whether there are fewer than NCCL gives the algorithm."""
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
  """What 1 / factor as many channels take; rates are linear in between."""
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
  # More channels may be predicted to be slower; slow ones are never faster.
  return max(1 / between, predict(key, setting).time_us)
