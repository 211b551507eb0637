# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The time that a scatter loses where its indices repeat.

XLA updates elements of fewer than 32 bits by compare-and-swap of the 32-bit
word that they are in, and every thread that was overtaken tries again. So each
update is tried about once more for each of the others that are in flight for
its word at the same time:

  tries = updates · elements · in flight · collision · elements per word
  time  = tries / (tries per clock · clock)

In flight are as many updates as have their threads on the GPU. How many of them
meet is up to the data, which no module has. Two tokens of a text are the same
as often as Zipf's law says: the r-th of n ids has the share 1 / (r H_n), H_n
being the n-th harmonic number, so

  collision = sum_r (1 / (r H_n))^2

1.4 % for a vocabulary of 32,000. That is what is predicted. Where all ids are
the same, as in MaxText's synthetic data (zeros) or in padding, the collision is
1, and `worst_us` the time: the H100 step's embedding gradient, 16,384 updates
of 640 bf16 elements with one id, took 22 to 68 ms where memory alone would take
0.04. The tries per clock are fitted to it (benchmarks/kernels/fit_fusions.py),
the only such scatter that was measured; they come to about one for each slice
of L2, which is where atomics are done. With unique ids there is no loss, and
`unique_indices` promises them. Wider elements are added by atomics that need no
second try.
"""

from __future__ import annotations

import functools
import json
import math
import pathlib

from lagom_xla.cluster import gpu as gpu_lib
from lagom_xla.passes.kernel_work import scatters

_FITTED = pathlib.Path(__file__).with_name("fitted") / "scatter.json"
_WORD_BITS = 32


def time_us(scatter: scatters.Scatter, gpu: gpu_lib.Gpu) -> float:
  """Expected time of further tries; 0 if each update succeeds at once."""
  return worst_us(scatter, gpu) * collision(scatter.num_places)


def worst_us(scatter: scatters.Scatter, gpu: gpu_lib.Gpu) -> float:
  """Time of further tries if all indices are the same."""
  return num_tries(scatter, gpu) / (tries_per_clock() * gpu.clock_ghz * 1e3)


def num_tries(scatter: scatters.Scatter, gpu: gpu_lib.Gpu) -> float:
  """Further tries if all indices are the same; 0 where none can be needed."""
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
  # H_n and the sum of squares, by Euler and Maclaurin.
  harmonic = math.log(num_ids) + 0.5772156649 + 1 / (2 * num_ids)
  squares = math.pi**2 / 6 - 1 / num_ids + 1 / (2 * num_ids**2)
  return squares / harmonic**2


@functools.cache
def tries_per_clock() -> float:
  """The fitted rate of compare-and-swaps of contended words, of a whole GPU."""
  document = json.loads(_FITTED.read_text(encoding="utf-8"))
  return document["tries_per_clock"]
