# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The space of one tuning key: all settings that a search may try.

Per key: algorithm A, protocol P, channels NC and chunk size C. Lagom (arXiv
2602.20656, section 3.2) splits them: A and P (and the transport T) enumerate
*subspaces*; inside one, NC and C are resources that grow. NCCL's tuner
interface sets neither the transport nor the thread count NT, so they are not
part of the space; the paper finds NT negligible (figure 3).
"""

from __future__ import annotations

import dataclasses

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl

# The smallest chunk that is tried: below it a chunk's handshake is most of its
# time whatever the link.
_MIN_CHUNK_BYTES = {"ll": 4096, "ll128": 15360, "simple": 32768}

# NCCL lets a tuner raise the chunks of NVLS beyond its own; whether the results
# are then right has not been seen on a GPU.
_MOST_NVLS_CHUNK_BYTES = 128 * 1024


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Subspace:
  """All settings of one algorithm and protocol.

  Attributes:
    num_channels: values of NC, rising.
    chunk_bytes: values of C, rising; whole grains of the protocol.
  """

  algorithm: str
  protocol: str
  num_channels: tuple[int, ...]
  chunk_bytes: tuple[int, ...]

  def setting(self, channels_at: int, chunk_at: int) -> nccl.Setting:
    """The setting at these positions of the two axes."""
    return nccl.Setting(
      algorithm=self.algorithm,
      protocol=self.protocol,
      num_channels=self.num_channels[channels_at],
      chunk_bytes=self.chunk_bytes[chunk_at],
    )

  @property
  def settings(self) -> tuple[nccl.Setting, ...]:
    """All settings."""
    return tuple(
      self.setting(channels_at, chunk_at)
      for channels_at in range(len(self.num_channels))
      for chunk_at in range(len(self.chunk_bytes))
    )

  @property
  def most(self) -> nccl.Setting:
    """The setting with the most resources."""
    return self.setting(-1, -1)


def subspaces(
  key: collective_lib.TuningKey, cluster: cluster_lib.Cluster
) -> tuple[Subspace, ...]:
  """The subspaces of a tuning key, in NCCL's order.

  Send/recv collectives have one, with only NCCL's default in it: there is no
  tuner for them.
  """
  if key.kind in nccl.SEND_RECV:
    default = collective_lib.default_setting(key, cluster)
    return (
      Subspace(
        algorithm=default.algorithm,
        protocol=default.protocol,
        num_channels=(default.num_channels,),
        chunk_bytes=(default.chunk_bytes,),
      ),
    )
  communicator = key.communicator
  return tuple(
    Subspace(
      algorithm=algorithm,
      protocol=protocol,
      num_channels=tuple(
        range(1, nccl.max_channels(cluster, communicator, algorithm) + 1)
      ),
      chunk_bytes=_chunks(algorithm, protocol),
    )
    for algorithm, protocol in nccl.candidates(cluster, communicator, key.kind)
  )


def _chunks(algorithm: str, protocol: str) -> tuple[int, ...]:
  """Chunk sizes in steps of two, from the smallest to NCCL's own limit."""
  grain = nccl.chunk_grain_bytes(protocol)
  largest = nccl.max_chunk_bytes(algorithm, protocol)
  if algorithm.startswith("nvls"):
    largest = min(largest, _MOST_NVLS_CHUNK_BYTES)
  sizes = {largest // grain * grain}
  size = _MIN_CHUNK_BYTES[protocol]
  while size < largest:
    sizes.add(size // grain * grain)
    size *= 2
  return tuple(sorted(sizes))
