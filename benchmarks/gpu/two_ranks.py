# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Two ranks on one GPU: kernels beside a real NCCL, at many settings.

What is measured so holds for SMs, waves, L2 and memory; not for NVLink, of
which there is none between the ranks. Only contention is compared
(`kernel_times.compared_beside`). Both ranks' NCCL kernels are on the one GPU:
they take twice the SMs, and the memory's rate for both.
"""

from __future__ import annotations

from collections.abc import Iterator
import pathlib
import time
from typing import Any

from benchmarks.gpu import environment
from benchmarks.gpu import part as part_lib
from benchmarks.gpu import ranks

# Kept back of the part's time, for what was begun to be told.
_RESERVE_S = 15.0
_LIMIT_OF_JOB_S = 60.0
_MIB = 2**20
# NCCL's own (src/include/comm.h); a channel hands on an eighth at a time, four
# of which are a chunk of a ring's all-reduce.
_BUFFER_BYTES = 4 * _MIB
_CHUNKS_PER_BUFFER = 2
# A channel of NCCL moves some 20 GB/s: an all-reduce of so many bytes for each
# outlasts the kernels beside it.
_BYTES_PER_CHANNEL = 128 * _MIB
_MOST_BYTES = 2**30
_WIDTH = 4096
_NUM_LAYERS = 6
# Channels of every collective, and NCCL_BUFFSIZE, which chunks are cut from.
# What tells most comes first, as time may not suffice for all.
_SETTINGS = (
  *((num_channels, _BUFFER_BYTES) for num_channels in (8, 1, 32, 16, 4, 64, 2)),
  *((8, buffer_bytes) for buffer_bytes in (_MIB // 2, 16 * _MIB, _MIB)),
  (32, _MIB // 2),
)


def measure(folder: pathlib.Path) -> dict[str, Any]:
  """Measures one setting after the other, as long as there is time.

  Raises:
    JobError: no setting came to an end.
  """
  deadline_s = time.monotonic() + part_lib.own_limit_s() - _RESERVE_S
  rows: list[dict[str, Any]] = []
  with ranks.mps() as environ:
    for row in _rows(folder, dict(environ), deadline_s):
      rows.append(row)
      part_lib.keep(folder, "two_ranks", {"rows": rows})
  if not any("step_us" in row for row in rows):
    raise ranks.JobError(rows[0]["reason"] if rows else "There was no time.")
  return {"rows": rows}


def _rows(
  folder: pathlib.Path, environ: dict[str, str], deadline_s: float
) -> Iterator[dict[str, Any]]:
  """A row for each setting for which there is time."""
  num_failed = 0
  for index, (num_channels, buffer_bytes) in enumerate(_SETTINGS):
    left_s = deadline_s - time.monotonic()
    # If the first two fail, the others will, too.
    if left_s < _LIMIT_OF_JOB_S / 2 or num_failed == index == 2:
      return
    here = folder / f"ranks{index}"
    num_bytes = min(num_channels * _BYTES_PER_CHANNEL, _MOST_BYTES)
    row: dict[str, Any] = {
      "num_channels": num_channels,
      "buffer_bytes": buffer_bytes,
      "num_bytes": num_bytes,
    }
    setting = {
      "NCCL_MIN_CTAS": str(num_channels),
      "NCCL_MAX_CTAS": str(num_channels),
      "NCCL_BUFFSIZE": str(buffer_bytes),
    }
    job = ranks.Job(
      folder=str(here),
      num_bytes=num_bytes,
      width=_WIDTH,
      num_layers=_NUM_LAYERS,
    )
    limit_s = min(left_s, _LIMIT_OF_JOB_S)
    try:
      row["step_us"] = ranks.run(job, {**environ, **setting}, limit_s=limit_s)
    except ranks.JobError as error:  # The other settings may do.
      num_failed += 1
      yield row | {"reason": str(error)}
      continue
    try:
      # All traces are there by now, whatever becomes of the comparison.
      from benchmarks.gpu import kernel_times

      row |= kernel_times.compared_beside(
        here,
        environment.several(2),
        chunk_bytes=buffer_bytes // _CHUNKS_PER_BUFFER,
      )
    except Exception as error:
      row["reason"] = str(error) or type(error).__name__
    yield row
