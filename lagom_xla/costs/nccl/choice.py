# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""NCCL's choice of a setting for a collective, and its predicted time.

NCCL predicts latency + bytes / bandwidth for every algorithm and protocol, runs
the fastest pair, and uses fewer channels for few bytes. This module does the
same as NCCL 2.32, with the equations of model.py. It gives the setting that a
tuner starts from and must beat. Its times are not those of a GPU: in NCCL's
model neither channels nor chunks change the time.

Verified against the real library on 1 to 16 H100, A100 and B200 nodes, and on
parts of nodes. NCCL has no model of sends and receives (permutes, all-to-alls);
for those see launch.py.

Sizes are NCCL's: the tensor of an all-reduce, broadcast or reduce; the whole
buffer (all ranks' parts) of an all-gather or reduce-scatter; the bytes that
each rank sends in a permute; the whole buffer of a rank in an all-to-all. Names
that end in _gbps are in 1e9 bytes per second.

Environment variables of this process limit the choice and the candidates as
they limit NCCL's (environment.py). Not modeled: CollNet (SHARP), registered and
symmetric buffers, and other variables and configurations that change NCCL's
defaults.

Between nodes, network plugins and the scripts that start a cloud's jobs also
limit the choice, unless the process overrides them:

- TCPX: NCCL_ALGO=Ring and NCCL_PROTO=Simple (google/nccl-plugin-gpudirecttcpx).
- TCPXO: every nccl-env-profile has Simple in NCCL_PROTO, some have LL128, none
  has LL (google/nccl-plugin-gpudirect-tcpxo, tcpxo_scripts/, at 04815d1).
- EFA on p4d and p4de: aws-ofi-nccl forces Simple, because messages arrive out
  of order (force_proto_simple, later need_ordering in src/platform-aws.cpp).
- Slingshot with Grace: no LL128. NCCL did not use it before 2.27, and since
  then it corrupts data (NVIDIA/nccl#2001).
"""

from __future__ import annotations

from collections.abc import Collection
import dataclasses
import functools
import math

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import validation
from lagom_xla.costs.nccl import environment
from lagom_xla.costs.nccl import graph
from lagom_xla.costs.nccl import launch as launch_lib
from lagom_xla.costs.nccl import model


def _scripts_allow(
  cluster: cluster_lib.Cluster,
  communicator: graph.Communicator,
  algorithm: str,
  protocol: str,
) -> bool:
  """Whether a cloud's scripts and plugins let NCCL use the pair."""
  if communicator.num_nodes == 1:
    return True
  match cluster.node.fabric:
    case "tcpx":
      return (algorithm, protocol) == ("ring", "simple")
    case "tcpxo":
      return protocol != "ll"
    case "efa" if cluster.gpu.compute_capability < (9, 0):
      return protocol == "simple"
    case "slingshot" if cluster.node.cpu_vendor == "arm":
      return protocol != "ll128"
  return True


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
  """The values that a tuner can set for one tuning key.

  Attributes:
    algorithm: "ring", "tree", "nvls", "nvlstree" or "pat"; "p2p" for sends and
      receives, which no tuner can set.
    protocol: "ll", "ll128" or "simple".
    num_channels: CTAs, and so SMs, that the collective takes; 0 for a single
      rank, which needs no kernel. No plan has 0.
    chunk_bytes: bytes that a channel passes on at a time.
  """

  algorithm: validation.Text
  protocol: validation.Text
  num_channels: validation.Count
  chunk_bytes: validation.Bytes


def candidates(
  cluster: cluster_lib.Cluster, communicator: graph.Communicator, kind: str
) -> tuple[tuple[str, str], ...]:
  """The (algorithm, protocol) pairs that NCCL could run, in NCCL's order.

  Variables of this process and scripts of its cloud (see above) can exclude
  pairs. A single rank has one pair, ("ring", "simple"), as in NCCL's reports.

  Raises:
    ValueError: no such kind.
    FlagsError: the variables exclude all pairs.
  """
  terms = model.terms_of(cluster, communicator, kind)
  if kind in model.SEND_RECV:
    return (("p2p", "ll"), ("p2p", "simple"))
  if communicator.num_ranks == 1:
    return (("ring", "simple"),)
  choice = environment.choice(kind)
  pairs = tuple(
    (algorithm, protocol)
    for algorithm in model.ALGORITHMS
    for protocol in model.PROTOCOLS
    if model.exists(terms, algorithm, protocol)
    and choice.allows(algorithm, protocol)
    and (
      protocol != "ll128"
      or choice.trusts_ll128
      or model.allows_ll128(terms, algorithm)
    )
    and (
      choice.is_listed
      or _scripts_allow(cluster, communicator, algorithm, protocol)
    )
  )
  if not pairs:
    # "No algorithm/protocol available" in src/enqueue.cc.
    set_here = environment.in_words(environment.costed())
    raise errors.FlagsError(
      f"{set_here} leave{'' if ' and ' in set_here else 's'} NCCL no algorithm"
      f" for an {kind} over {communicator.num_ranks:,} GPUs, and NCCL would end"
      " the job: allow ring as well."
    )
  return pairs


def predicted_time_us(
  cluster: cluster_lib.Cluster,
  communicator: graph.Communicator,
  kind: str,
  num_bytes: int,
  algorithm: str,
  protocol: str,
  version: model.Version = model.NEWEST,
) -> float:
  """The time that NCCL itself predicts (ncclTuningGetTime).

  `kind` is XLA's name of the collective, such as "all-gather", or "reduce",
  which only NCCL has. `num_bytes` is NCCL's size (see above). `version` is
  NCCL's version.

  Raises:
    ValueError: no such kind, or NCCL has no model of the pair here.
  """
  pair = (cluster, communicator, kind, algorithm, protocol)
  terms = model.terms_of(cluster, communicator, kind)
  latency, bandwidth = latency_us(*pair), bandwidth_gbps(*pair)
  latency += model.counted_latency_us(terms, algorithm, protocol)
  latency += model.older_latency_us(terms, algorithm, protocol, version)
  bandwidth *= model.older_bandwidth(terms, algorithm, protocol, version)
  # log2 of the size in units of 64 B: the index of the tables.
  size_index = (num_bytes >> 6).bit_length() - 1
  row = model.TREE_CORRECTION[model.PROTOCOLS.index(protocol)]
  if algorithm == "tree" and 0 <= size_index < 23:
    bandwidth *= row[size_index]
  if algorithm == "nvlstree" and 0 <= size_index < 24 and terms.blackwell_x86:
    bandwidth *= row[size_index]
  if (algorithm, protocol) == ("ring", "simple"):
    latency *= _plateau(terms, num_bytes)
  return latency + num_bytes / (1e3 * bandwidth)


def _plateau(terms: model.Terms, num_bytes: int) -> float:
  """NCCL's factor on the latency of large rings under Simple.

  NCCL 2.32 applies it to all-reduces between nodes, and to all rings within a
  node of Blackwells on x86. There it grows with the steps and shrinks with the
  bytes.
  """
  communicator = terms.communicator
  share = num_bytes // (communicator.num_ranks * terms.graphs.num_channels)
  excess = 0.4 if terms.capability >= 80 else 0.9
  if share < 64 or terms.kind in model.ROOTED:
    return 1.0
  if communicator.num_nodes > 1:
    return 1 + excess if terms.kind == "all-reduce" else 1.0
  if not terms.blackwell_x86:
    return 1.0
  beyond = min(max(share / 2**18 - 1, 0.0), 1.0)
  started = 1 - (0.1 / excess) ** (terms.num_steps - 1)
  return 1 + (excess - 0.1 * beyond) * started


def latency_us(
  cluster: cluster_lib.Cluster,
  communicator: graph.Communicator,
  kind: str,
  algorithm: str,
  protocol: str,
) -> float:
  """NCCL's latency of one operation, without terms that depend on its size."""
  return _parts(cluster, communicator, kind, algorithm, protocol)[0]


def net_hop_us(
  cluster: cluster_lib.Cluster,
  communicator: graph.Communicator,
  kind: str,
  algorithm: str,
  protocol: str,
) -> float:
  """The part of `latency_us` for one hop between nodes."""
  terms = model.terms_of(cluster, communicator, kind)
  return model.net_hop_us(terms, algorithm, protocol)


def bandwidth_gbps(
  cluster: cluster_lib.Cluster,
  communicator: graph.Communicator,
  kind: str,
  algorithm: str,
  protocol: str,
) -> float:
  """NCCL's bytes over time for large sizes, in 1e9 bytes per second.

  Infinite for a single rank.
  """
  return _parts(cluster, communicator, kind, algorithm, protocol)[1]


@functools.lru_cache(maxsize=16384)
def _parts(
  cluster: cluster_lib.Cluster,
  communicator: graph.Communicator,
  kind: str,
  algorithm: str,
  protocol: str,
) -> tuple[float, float]:
  terms = model.terms_of(cluster, communicator, kind)
  if kind in model.SEND_RECV:
    known = algorithm == "p2p" and protocol in ("ll", "simple")
  else:
    known = model.exists(terms, algorithm, protocol)
  if not known:
    raise ValueError(
      f"NCCL has no {algorithm!r} with {protocol!r} for {kind} on"
      f" {communicator}; use one of candidates()"
    )
  if communicator.num_ranks == 1:
    return 0.0, math.inf
  if kind in model.SEND_RECV:
    # A launch and one hop, to the farthest peer.
    is_far = communicator.num_nodes > 1
    return (
      model.hop_us(terms, protocol, net=is_far),
      launch_lib.send_recv_gbps(cluster, terms),
    )
  return (
    model.latency_us(terms, algorithm, protocol),
    model.bandwidth_gbps(terms, algorithm, protocol),
  )


def default_setting(
  cluster: cluster_lib.Cluster,
  communicator: graph.Communicator,
  kind: str,
  num_bytes: int,
  version: model.Version = model.NEWEST,
  among: graph.Communicator | None = None,
  algorithms: Collection[str] = model.ALGORITHMS,
) -> Setting:
  """NCCL's own choice. Arguments are those of `predicted_time_us`.

  `among` is the whole communicator of a permute, if `communicator` counts only
  the ranks that exchange data. `algorithms` limits the choice; at least one
  must be a candidate.

  Raises:
    ValueError: no such kind.
  """
  key = (cluster, communicator, kind)
  terms = model.terms_of(*key)
  if communicator.num_ranks == 1:
    algorithm, protocol = candidates(*key)[-1]
    channels, chunk = 0, launch_lib.max_chunk_bytes(algorithm, protocol)
  elif kind in model.SEND_RECV:
    algorithm = "p2p"
    protocol, channels, chunk = launch_lib.send_recv(
      cluster,
      terms,
      num_bytes,
      None if among is None else model.terms_of(cluster, among, kind),
    )
  else:
    algorithm, protocol = min(
      (pair for pair in reversed(candidates(*key)) if pair[0] in algorithms),
      key=lambda pair: predicted_time_us(*key, num_bytes, *pair, version),
    )
    channels = launch_lib.num_channels(
      cluster, communicator, num_bytes, algorithm, protocol
    )
    chunk = launch_lib.chunk_bytes(
      *key, num_bytes // channels, algorithm, protocol
    )
  return Setting(
    algorithm=algorithm,
    protocol=protocol,
    num_channels=channels,
    chunk_bytes=chunk,
  )
