# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's own kernels for collectives: which one runs, its time and its SMs.

No setting, cap or variable of NCCL affects these kernels. In them, GPUs of one
NVLink domain read and write each other's memory.

*All-reduces* have two forms (GetAllReduceStrategy in xla/backends/gpu/runtime/
all_reduce.cc). In one shot, each rank passes a barrier and reads the whole
array of each other rank: (N - 1) S bytes. In two shots, it sums its N-th part,
passes a second barrier, and gathers the other parts: 2 (N - 1) / N S bytes.
XLA's own model counts the same bytes (SolGPUCostModel::
IntraNodeAllReduceLatency in xla/service/gpu/model/sol_gpu_cost_model.cc), at
1 us for the launch, 1.5 us for a barrier and 20 GB/s per link of an H100.
Measurements of the same algorithm are slower, above all from the second barrier
on (vllm#24111, six H100s, 0.5 to 4 MiB): 13 to 70 us in one shot and 15 to 37
in two, where XLA's model has 10 to 61 and 6 to 23. So the latencies and rates
here are fitted to that table. On four GPUs (vllm#24532), which are not in the
fit, they are within 16 % in one shot and 18 % in two.

*All-gathers and reduce-scatters* have one form, from JAX 0.12 on, if
`xla_gpu_experimental_use_collective_kernels` names them. XLA uses it for 16 MiB
but not for 32: each rank reads the parts of the others, (N - 1) / N S bytes of
the whole buffer (all_gather.cc). No times are published. They are assumed to
read like all-reduces in one shot.

*Ragged-all-to-alls* copy each update (the rows for one rank at one offset) in a
block of 128 threads, each of which moves at most 8 bytes at a time
(RunRaggedAllToAllKernel in xla/backends/gpu/runtime/ragged_all_to_all.cc). A
block waits for memory once per such round. Eight B200s moved 16.42 GiB/s each
(xla#33386), which is a round of eight blocks every 0.46 us. More updates per
rank mean more blocks: with 32 instead of one the kernel was 17.8 times faster
(marin#8077). The limit is the share of the links that 64 GB200s reached with 30
updates: 3.21 GB per rank in 7.56 ms (marin's research/mcwitt/8317-dk-native).

With an option of JAX 0.12, one *device kernel* runs them, with a block of 512
threads per SM. Several blocks share an update if there are enough of them;
otherwise blocks take updates in turn (RaggedAllToAllCopy). On those GB200s a
block moved 2.7 GB/s with one and three updates per rank, and a third of that
with 30, which is not modeled (xla#47928).
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.passes import collectives as collectives_lib

Form = Literal["one-shot", "two-shot", "copies", "device"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Kernel:
  """One of XLA's own kernels, as launched for a collective.

  Attributes:
    form: how it moves data.
    num_blocks: its thread blocks.
    num_updates: updates that a device kernel distributes over its blocks.
  """

  form: Form
  num_blocks: int
  num_updates: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Switches:
  """The options that decide which of XLA's own kernels may run.

  Attributes:
    off: kinds that NCCL runs instead.
    across_processes: kinds whose kernels may span several processes.
    most_exchanging: the most ranks of a ragged-all-to-all in such a kernel.
    exchanges_on_device: whether the device kernel runs ragged-all-to-alls.
  """

  off: frozenset[str] = frozenset()
  across_processes: frozenset[str] = frozenset()
  most_exchanging: int = 8
  exchanges_on_device: bool = False


AS_BY_DEFAULT = Switches()

# Limits of an all-reduce (all_reduce.cc). Each thread takes four elements.
_MOST_BLOCKS = 32
_BLOCK_THREADS = 512
_THREAD_ELEMENTS = 4
# The most bytes that XLA reduces in one shot (kMaxOneShotAllReduceSizeBytes).
_ONE_SHOT_BYTES = 256 * 1024

_ROUND_BYTES = 128 * 8
_ROUND_US = 8 * _ROUND_BYTES / (16.42 * 2**30) * 1e6

# By form: the latency and the share of the links' rate, as straight lines
# through the table of vllm#24111, where the links' rate is 370.8 GB/s. The
# share of copies is 63 / 64 of 3.21 GB in 7.56 ms, over links of 721.8 GB/s.
_LATENCY_US = {"one-shot": 4.9, "two-shot": 11.9, "copies": 4.9, "device": 4.9}
_LINK_SHARE = {"one-shot": 0.87, "two-shot": 0.75, "copies": 0.58}
_LINK_SHARE["device"] = _LINK_SHARE["copies"]
_DEVICE_BLOCK_GBPS = 2.7

# Bytes of memory traffic per byte on the links: one read and one write.
_MEMORY_PASSES = 2.0


def of(
  collective: collectives_lib.Collective,
  cluster: cluster_lib.Cluster,
  switches: Switches,
) -> Kernel | None:
  """XLA's own kernel for a collective; None if NCCL runs it.

  Args:
    collective: the collective, as compiled.
    cluster: the cluster that it runs on.
    switches: the kernels that may run.
  """
  kind, num_ranks = collective.kind, collective.group_size
  if kind in switches.off or num_ranks < 2:
    return None
  is_exchange = kind == "ragged-all-to-all"
  if not is_exchange and not collective.xla_strategy:
    return None
  if any(cluster.num_nccl_nodes_of(group) > 1 for group in collective.groups):
    return None  # These kernels need NVLink to read other GPUs' memory.
  if not is_exchange:
    is_two_shot = "TWO_SHOT" in collective.xla_strategy or (
      collective.xla_strategy == collectives_lib.FUSED_KERNEL
      and kind == "all-reduce"
      and collective.nccl_bytes > _ONE_SHOT_BYTES
    )
    is_by_parts = is_two_shot or kind == "reduce-scatter"
    per_thread = _THREAD_ELEMENTS * (num_ranks if is_by_parts else 1)
    threads = -(-collective.num_elements // per_thread)
    kernel = Kernel(
      form="two-shot" if is_two_shot else "one-shot",
      num_blocks=max(1, min(-(-threads // _BLOCK_THREADS), _MOST_BLOCKS)),
    )
  elif switches.exchanges_on_device and collective.num_updates:
    return Kernel(
      form="device",
      num_blocks=cluster.gpu.num_sms,
      num_updates=collective.num_updates,
    )
  elif num_ranks <= switches.most_exchanging and collective.num_updates:
    kernel = Kernel(form="copies", num_blocks=collective.num_updates)
  else:
    return None
  if any(cluster.num_processes_of(group) > 1 for group in collective.groups):
    return kernel if kind in switches.across_processes else None
  return kernel


def predict(
  key: collective_lib.TuningKey, kernel: Kernel, cluster: cluster_lib.Cluster
) -> collective_lib.CollectiveCost:
  """Predicts the cost of a collective alone in one of XLA's own kernels."""
  num_others = key.num_ranks - 1
  if kernel.form == "one-shot" and key.kind == "all-reduce":
    wire_bytes = num_others * key.num_bytes
  else:
    num_phases = 2 if kernel.form == "two-shot" else 1
    wire_bytes = num_phases * num_others / key.num_ranks * key.num_bytes
  least_us = wire_bytes / (1e3 * _links_gbps(cluster.node))
  moving_us = least_us / _LINK_SHARE[kernel.form]
  if kernel.form == "copies":
    rounds = key.num_bytes / (kernel.num_blocks * _ROUND_BYTES)
    moving_us = max(moving_us, rounds * _ROUND_US)
  if kernel.form == "device":
    update_bytes = key.num_bytes / kernel.num_updates
    busiest_bytes = update_bytes * -(-kernel.num_updates // kernel.num_blocks)
    if kernel.num_updates < kernel.num_blocks:
      busiest_bytes /= kernel.num_blocks // kernel.num_updates
    moving_us = max(moving_us, busiest_bytes / (1e3 * _DEVICE_BLOCK_GBPS))
  time_us = _LATENCY_US[kernel.form] + moving_us
  return collective_lib.CollectiveCost(
    time_us=time_us,
    num_channels=min(kernel.num_blocks, cluster.gpu.num_sms),
    memory_gbps=_MEMORY_PASSES * wire_bytes / (1e3 * time_us),
    within_load=least_us / time_us,
  )


def _links_gbps(node: cluster_lib.Node) -> float:
  """NCCL's rate for the links between a GPU and its neighbors."""
  if node.nvlink is None:
    return node.pcie_effective_gbps
  return node.nvlink.num_links * node.nvlink.link_effective_gbps
