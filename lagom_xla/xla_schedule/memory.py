# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The memory that XLA's scheduler may use, and schedules that are short of it.

Ahead of time XLA starts from 80 % of the device's memory; on live GPUs from
what JAX's allocator may take (jaxlib/py_client.cc; 75 % by default, see
XLA_PYTHON_CLIENT_MEM_FRACTION), with nothing off. Arguments and results, which
are alive all the time, come off first; of the rest it takes 95 % by default
(xla_gpu_memory_limit_slop_factor; GetSchedulerMemoryLimit in
xla/service/gpu/gpu_hlo_schedule.cc). The latency-hiding scheduler starts
collectives later, or orders kernels otherwise, to keep below that.

How much a schedule needs is estimated here (`live_bytes`), so that one close to
the limit counts as short of memory.
"""

from __future__ import annotations

import dataclasses

from lagom_xla import cluster as cluster_lib
from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import aliasing
from lagom_xla.passes.schedule import live_bytes

# Of the device's memory, where there is no live device; in percent.
_BASE_PERCENT = 80
# DebugOptions' default of xla_gpu_memory_limit_slop_factor.
_DEFAULT_SLOP_PERCENT = 95
# XLA packs buffers tighter than the estimate knows, or looser: schedules that
# the limit had changed were at 95 % of it by the estimate.
_SHORT_FROM = 0.9


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
  """What a schedule needs, and what it may need.

  Attributes:
    peak_bytes: what it needs at its peak, estimated.
    held_bytes: arguments and results, a part of that.
    base_bytes: what XLA starts from.
  """

  peak_bytes: int
  held_bytes: int
  base_bytes: int

  @property
  def is_short(self) -> bool:
    """Whether XLA's scheduler may have had to heed its default limit."""
    limit_bytes = self.limit_bytes(_DEFAULT_SLOP_PERCENT)
    return self.peak_bytes >= _SHORT_FROM * limit_bytes

  def limit_bytes(self, slop_percent: int) -> float:
    """What a schedule may need with xla_gpu_memory_limit_slop_factor so."""
    free_bytes = max(self.base_bytes - self.held_bytes, 0)
    return self.held_bytes + free_bytes * slop_percent / 100


def of(module: hlo.Module, cluster: cluster_lib.Cluster) -> Memory:
  """The memory of a schedule that was made ahead of time."""
  buffers = aliasing.of(module)
  return Memory(
    peak_bytes=live_bytes.peak_bytes(module, buffers),
    held_bytes=live_bytes.held_bytes(module, buffers),
    base_bytes=cluster.gpu.hbm_bytes * _BASE_PERCENT // 100,
  )
