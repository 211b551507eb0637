# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The calls of a combined collective: arrays that share one choice of NCCL's.

XLA runs a collective of several arrays as one ncclGroup with a NCCL call for
each array. NCCL puts the calls in order of size, smallest first, and asks for a
setting once for each run of them that are less than four times as large as the
run's first, with the bytes of them all (ncclPrepareTasks in src/enqueue.cc, the
same from 2.22 to 2.31). Calls for another function, reduction or data type are
apart; of one XLA collective all are alike, because XLA combines reductions only
within a type, and NCCL counts all-gathers and broadcasts in bytes.

The order is rough: within a quarter of a power of two, below 1 KiB and from
1 GiB on, it is that of XLA's operands (ncclTaskCollSorter in
src/include/comm.h). Not modelled: symmetric buffers, which NCCL takes out
first.
"""

from __future__ import annotations

from collections.abc import Sequence

_UNIT_BYTES = 2**10
_MOST_BYTES = 2**30
_BITS = 3  # That the order knows of a size: the first one and two more.


def aggregates(
  kind: str, array_bytes: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
  """The runs of arrays that NCCL asks about, in its order.

  Args:
    kind: XLA's name of the collective, such as "all-gather".
    array_bytes: of each array, as NCCL counts them, in XLA's order.

  Returns:
    The bytes of each array, by run. Arrays without bytes are in none.
  """
  # What NCCL compares is traffic: an all-reduce moves each byte twice.
  traffic = 2 if kind == "all-reduce" else 1
  ordered = sorted(filter(None, array_bytes), key=lambda b: _rank(traffic * b))
  runs: list[list[int]] = []
  for num_bytes in ordered:
    if runs and num_bytes < 4 * runs[-1][0]:
      runs[-1].append(num_bytes)
    else:
      runs.append([num_bytes])
  return tuple(map(tuple, runs))


def _rank(traffic_bytes: int) -> tuple[int, int]:
  units = min(traffic_bytes, _MOST_BYTES) // _UNIT_BYTES
  shift = max(units.bit_length() - _BITS, 0)
  return shift, units >> shift
