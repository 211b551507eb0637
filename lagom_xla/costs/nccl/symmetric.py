# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""NCCL's kernels for symmetric buffers: its choice, their CTAs and times.

If both buffers of a collective are windows that all ranks registered alike,
NCCL uses such a kernel without asking a tuner. It has its own model for the
choice (queryModel_lsa and ncclSymkPickKernel in src/sym_kernels.cc, 2.30.7):

    t = start + softplus(B / bw - 1),  bw = softmin(CTAs * b_CTA * m, peak)

B is the bytes of a rank's busier direction. m is the bytes that arrive per byte
that a CTA moves, above 1 if the switch multicasts. For each kernel NCCL takes
the fewest CTAs whose time is within 2.5 % of that of the most CTAs. It then
takes the kernel with the least t (1 + 0.025 CTAs). Its figures are for Hopper
and Blackwell, in 2**30 bytes per second. Here the GPU's links also bound the
rate.

Not modeled: kernels between nodes, which NCCL chooses by its own measurements
of the network, and kernels that use TMA, which are off by default. Names that
end in _gbps are in 1e9 bytes per second.
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
import math

from lagom_xla import cluster as cluster_lib

_GIB_PER_S_GBPS = 2**30 / 1e9
_MAX_CTAS = 64  # ncclSymkMaxBlocks.
_LL_FACTOR = 9.0  # LL_BusFactor.
_TOLERANCE = 1.025
_SM_PENALTY = 0.025
_BLACKWELL = (10, 0)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Kernel:
  """One kernel with NCCL's number of CTAs.

  Attributes:
    name: its name in NCCL's log.
    num_ctas: CTAs, and so SMs, that it takes.
    time_us: predicted time.
  """

  name: str
  num_ctas: int
  time_us: float


@dataclasses.dataclass(frozen=True, slots=True)
class _Variant:
  """A kernel before its number of CTAs is chosen.

  Attributes:
    name: its name in NCCL's log.
    bus_bytes: bytes that a rank sends or receives, whichever are more.
    multiplier: bytes that arrive per byte that a CTA moves.
    most_ctas: most CTAs that NCCL gives it.
  """

  name: str
  bus_bytes: float
  multiplier: float = 1.0
  most_ctas: int = _MAX_CTAS


def is_available(cluster: cluster_lib.Cluster) -> bool:
  """Whether each GPU reaches all others of its node by NVLink."""
  nvlink = cluster.node.nvlink
  return nvlink is not None and nvlink.topology == "nvswitch"


def kernel(
  cluster: cluster_lib.Cluster,
  kind: str,
  num_ranks: int,
  num_bytes: int,
  *,
  reduces_in_switch: bool,
  num_arrays: int,
  max_ctas: int | None,
) -> Kernel:
  """The kernel of a collective within an NVLink domain.

  Args:
    cluster: its cluster; `is_available` must hold.
    kind: "all-gather", "all-reduce" or "reduce-scatter".
    num_ranks: number of ranks.
    num_bytes: bytes of the whole buffer.
    reduces_in_switch: whether the switch can add up its elements.
    num_arrays: arrays in one launch; kernels with flags (LL) take only one.
    max_ctas: the communicator's most CTAs; None for NCCL's default.
  """
  gpu = cluster.gpu
  most_ctas = min(max_ctas or _MAX_CTAS, _MAX_CTAS)
  candidates = [
    _sized(cluster, variant, kind, most_ctas)
    for variant in _variants(gpu, kind, num_ranks, num_bytes, reduces_in_switch)
    if num_arrays == 1 or "LL" not in variant.name
  ]
  return min(
    candidates, key=lambda k: k.time_us * (1 + _SM_PENALTY * k.num_ctas)
  )


def _variants(
  gpu: cluster_lib.Gpu,
  kind: str,
  num_ranks: int,
  num_bytes: int,
  reduces_in_switch: bool,
) -> Iterator[_Variant]:
  multicasts = gpu.compute_capability >= (9, 0) and num_ranks > 2
  reduces_in_switch = reduces_in_switch and multicasts
  is_blackwell = gpu.compute_capability >= _BLACKWELL
  switch_ctas = math.ceil((32 if is_blackwell else 16) / num_ranks)
  others_bytes = num_bytes * (num_ranks - 1) / num_ranks
  flagged_bytes = _LL_FACTOR * num_bytes
  match kind:
    case "all-gather":
      yield _Variant("AllGather_LL", flagged_bytes)
      yield _Variant("AllGather_ST", others_bytes)
      if multicasts:
        yield _Variant("AllGather_LLMC", flagged_bytes, 1.1)
        yield _Variant(
          "AllGather_STMC", others_bytes, 0.55 * num_ranks, switch_ctas
        )
    case "reduce-scatter":
      yield _Variant("ReduceScatter_LL", flagged_bytes)
      yield _Variant("ReduceScatter_LD", others_bytes)
      if reduces_in_switch:
        yield _Variant(
          "ReduceScatter_LDMC", others_bytes, 0.55 * num_ranks, switch_ctas
        )
    case "all-reduce":
      # Every rank gathers the whole buffer of every other rank.
      yield _Variant("AllReduce_AGxLL_R", num_ranks * flagged_bytes)
      yield _Variant("AllReduce_RSxLD_AGxST", 2 * others_bytes)
      if multicasts:
        yield _Variant("AllReduce_AGxLLMC_R", num_ranks * flagged_bytes, 1.1)
      if reduces_in_switch:
        yield _Variant(
          "AllReduce_RSxLDMC_AGxSTMC",
          num_bytes + num_bytes / num_ranks,
          num_ranks,
          switch_ctas,
        )


def _sized(
  cluster: cluster_lib.Cluster, variant: _Variant, kind: str, most_ctas: int
) -> Kernel:
  """The kernel with the fewest CTAs that are about as fast as the most CTAs."""
  most_ctas = min(variant.most_ctas, most_ctas)
  times_us = [
    _time_us(cluster, variant, kind, num_ctas)
    for num_ctas in range(1, most_ctas + 1)
  ]
  longest_us = _TOLERANCE * times_us[-1]
  num_ctas, time_us = next(
    (num_ctas, time_us)
    for num_ctas, time_us in enumerate(times_us, 1)
    if time_us <= longest_us
  )
  return Kernel(name=variant.name, num_ctas=num_ctas, time_us=time_us)


def _time_us(
  cluster: cluster_lib.Cluster, variant: _Variant, kind: str, num_ctas: int
) -> float:
  has_flags = "LL" in variant.name
  reduces_all, gathers = kind == "all-reduce", kind == "all-gather"
  in_switch = variant.name == "AllReduce_RSxLDMC_AGxSTMC"
  if cluster.gpu.compute_capability < _BLACKWELL:
    start_us = 4.5 if has_flags else 7.8
    cta_gib_per_s = 65.0 if reduces_all else 44.0
    peak_gib_per_s = 480.0 if in_switch else 320.0
  else:
    cta_gib_per_s = 55.0
    peak_gib_per_s = 1000.0 if in_switch else 600.0
    if has_flags:
      start_us = 8.5 if gathers else 11.0
    else:
      start_us = 19.5 if reduces_all else 13.0
  cta_gbps = cta_gib_per_s * _GIB_PER_S_GBPS
  peak_gbps = peak_gib_per_s * _GIB_PER_S_GBPS
  gbps = _softmin(num_ctas * cta_gbps * variant.multiplier, peak_gbps, cta_gbps)
  nvlink = cluster.node.nvlink
  assert nvlink is not None
  if not in_switch:  # In the switch, links carry less than `bus_bytes`.
    gbps = min(gbps, nvlink.num_links * nvlink.link_effective_gbps)
  return start_us + _softplus(variant.bus_bytes / (1e3 * gbps) - 1)


def _softmin(value: float, ceiling: float, softness: float) -> float:
  scale = math.exp(ceiling / softness) - 1
  return ceiling - softness * math.log1p(scale * math.exp(-value / softness))


def _softplus(value: float) -> float:
  return value if value >= 100 else math.log1p(math.exp(value))
