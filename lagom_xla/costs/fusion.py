# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The run time of a fusion: the longest of its bytes, operations and threads.

  launch + max(bytes / (memory rate · share),
               element operations / vector rate,
               threads / resident threads · wave,
               bytes / (column blocks · block rate))

Launch and share depend on the kernel's pattern of memory accesses. A wave is
the lifetime of a block whose threads each load, compute and store once. It is
mostly memory latency, independent of the bytes, and binds if each thread moves
few bytes. A column reduction has one block per 32 columns (the width of a
warp), for any number of rows. Memcpys have their own pattern. Loops that read
across memory (transposes of XLA before 2025) read a whole L2 fetch per element
if the line is evicted before its neighbor is read, at their own rate.
fitted/fusion.json has the parameters by architecture;
benchmarks/kernels/fit_fusions.py fits them.

*Scatters* lose time if their indices repeat. XLA updates elements of fewer than
32 bits by compare-and-swap of the 32-bit word around them, and every thread
that loses the race tries again. So an update is retried about once for each
other update of its word in flight:

  tries = updates · elements · in flight · collision · elements per word
  time  = tries / (tries per clock · clock)

The updates in flight are those whose threads are resident on the GPU. Their
collisions depend on the data, which the module does not contain. The prediction
draws tokens by Zipf's law: the r-th of n ids has the share 1 / (r H_n), where
H_n is the n-th harmonic number. So two ids are the same with probability

  collision = sum_r (1 / (r H_n))^2

If all ids are the same, as in MaxText's synthetic data (zeros) or in padding,
the collision is 1 and the time is `worst_scatter_us`. The tries per clock
(fitted/scatter.json) are fitted to the only such scatter with a measurement, in
the H100 step. They are about one per slice of L2, where atomics execute. Unique
ids, which `unique_indices` promises, lose nothing. Wider elements are added by
atomics that never retry.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import functools
import math

from lagom_xla import cluster as cluster_lib
from lagom_xla import costs
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.passes import memory_access

# XLA's reduction emitter: each lane of a warp reduces one column.
_COLUMNS_PER_BLOCK = 32


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Pattern:
  """Parameters of kernels with one pattern of memory accesses.

  Attributes:
    launch_us: time of a kernel that moves hardly any bytes.
    memory_share: share of the memory's rate that a long kernel reaches.
  """

  launch_us: float
  memory_share: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Fitted:
  """Parameters of fusions on one architecture.

  Attributes:
    launch_gap_us: from the end of a kernel to the start of the next one on the
      same stream.
    vector_share: rate of a fusion's element operations, over the SMs' issue
      rate of FP32 instructions.
    wave_us: time in which all threads of a full GPU load and store once.
    block_gbps: rate at which one block of a column reduction reads memory, in
      1e9 bytes per second.
    patterns: by `kernels.Kernel.pattern`.
  """

  launch_gap_us: float
  vector_share: float
  wave_us: float
  block_gbps: float
  patterns: Mapping[str, Pattern]


def time_us(
  parameters: Fitted, kernel: kernels_lib.Kernel, gpu: cluster_lib.Gpu
) -> float:
  """Run time of a kernel that moves bytes and computes elements.

  The SMs issue one FP32 operation per lane and clock. The data sheet's rate
  counts a multiply-add as two operations; here it is one.
  """
  pattern = parameters.patterns[kernel.pattern]
  bytes_per_us = gpu.hbm_gbps * 1e3 * pattern.memory_share
  operations_per_us = gpu.vector_f32_tflops / 2 * 1e6 * parameters.vector_share
  in_order_bytes = kernel.num_bytes - sum(
    scattered.num_elements * scattered.element_bytes
    for scattered in _beyond_l2(kernel, gpu)
  )
  return pattern.launch_us + max(
    in_order_bytes / bytes_per_us + scattered_us(kernel, gpu),
    kernel.num_element_operations / operations_per_us,
    threads_us(parameters, kernel, gpu),
  )


# L2 fetches two sectors of 32 bytes (cudaLimitMaxL2FetchGranularity is 64 by
# default). An SM uses half of L2: each partition caches what its own SMs read
# (NVIDIA's whitepaper on A100).
_FETCHED_BYTES = 64
_L2_SHARE = 0.5
# The only such loop with published figures read 22.14 GB, 2.64 GB of which it
# needed, and wrote 0.66 GB, in 44 ms (openxla/xla#2103, on an A100). Assumed:
# the A100 of 1,555 GB/s, and writes as fast as those of a tiled transpose.
_SCATTERED_SHARE = 22.14e9 / (44e-3 - 0.66e9 / (0.587 * 1555e9)) / 1555e9
# The range: the A100 may have been that of 2,039 GB/s, and scattered reads may
# be as fast as tiled ones.
SCATTERED_FACTORS = (2039 / 1555, _SCATTERED_SHARE / 0.587)


def scattered_us(kernel: kernels_lib.Kernel, gpu: cluster_lib.Gpu) -> float:
  """Time of reads whose L2 lines are evicted before their neighbors' reads."""
  fetched_bytes = sum(
    scattered.num_elements * min(_FETCHED_BYTES, scattered.bytes_apart)
    for scattered in _beyond_l2(kernel, gpu)
  )
  return fetched_bytes / (gpu.hbm_gbps * 1e3 * _SCATTERED_SHARE)


def _beyond_l2(
  kernel: kernels_lib.Kernel, gpu: cluster_lib.Gpu
) -> list[memory_access.Scattered]:
  return [
    scattered
    for scattered in kernel.scattered
    if scattered.elements_between * _FETCHED_BYTES > _L2_SHARE * gpu.l2_bytes
    and scattered.element_bytes < _FETCHED_BYTES
  ]


def threads_us(
  parameters: Fitted, kernel: kernels_lib.Kernel, gpu: cluster_lib.Gpu
) -> float:
  """The least run time for a kernel's threads, or for its blocks of columns."""
  num_waves = kernel.num_threads / (gpu.num_sms * gpu.threads_per_sm)
  all_waves_us = num_waves * parameters.wave_us
  if not kernel.num_columns:
    return all_waves_us
  num_blocks = math.ceil(kernel.num_columns / _COLUMNS_PER_BLOCK)
  blocks_bytes_per_us = num_blocks * parameters.block_gbps * 1e3
  return max(all_waves_us, kernel.num_bytes / blocks_bytes_per_us)


def fitted(gpu: cluster_lib.Gpu) -> Fitted:
  """The fitted parameters for a GPU.

  An architecture without parameters uses those of the nearest older one that
  has them, or of the oldest.
  """
  return _fitted(gpu.compute_capability[0])


@functools.cache
def _fitted(major: int) -> Fitted:
  sections = costs.read_fitted("fusion")
  majors = [int(name.removeprefix("sm_")) // 10 for name in sections]
  newest = max([m for m in majors if m <= major], default=min(majors))
  raw = sections[f"sm_{newest}0"]
  patterns = {name: Pattern(**p) for name, p in raw["patterns"].items()}
  figures = ("launch_gap_us", "vector_share", "wave_us", "block_gbps")
  return Fitted(**{name: raw[name] for name in figures}, patterns=patterns)


_WORD_BITS = 32


def scatter_us(scatter: memory_access.Scatter, gpu: cluster_lib.Gpu) -> float:
  """Expected time of retries; 0 if each update succeeds at once."""
  return worst_scatter_us(scatter, gpu) * collision(scatter.num_places)


def worst_scatter_us(
  scatter: memory_access.Scatter, gpu: cluster_lib.Gpu
) -> float:
  """Time of retries if all indices are the same."""
  return num_tries(scatter, gpu) / (tries_per_clock() * gpu.clock_ghz * 1e3)


def num_tries(scatter: memory_access.Scatter, gpu: cluster_lib.Gpu) -> float:
  """Retries if all indices are the same; 0 if none can be needed."""
  if not scatter.may_collide or not 0 < scatter.element_bits < _WORD_BITS:
    return 0.0
  resident = gpu.num_sms * gpu.threads_per_sm / max(scatter.window_elements, 1)
  in_flight = min(max(resident, 1.0), scatter.num_updates)
  num_elements = scatter.num_updates * scatter.window_elements
  return num_elements * (in_flight - 1) * _WORD_BITS / scatter.element_bits


@functools.cache
def collision(num_ids: int) -> float:
  """Probability that two ids drawn by Zipf's law are the same."""
  if num_ids < 2:
    return 1.0
  # H_n and the sum of squares, by the Euler-Maclaurin formula.
  harmonic = math.log(num_ids) + 0.5772156649 + 1 / (2 * num_ids)
  squares = math.pi**2 / 6 - 1 / num_ids + 1 / (2 * num_ids**2)
  return squares / harmonic**2


@functools.cache
def tries_per_clock() -> float:
  """Fitted rate of compare-and-swaps of contended words, on the whole GPU."""
  return costs.read_fitted("scatter")["tries_per_clock"]
