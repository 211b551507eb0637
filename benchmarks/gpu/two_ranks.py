# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Two ranks on one GPU: kernels beside a real NCCL, at many settings.

NCCL lets ranks share a GPU since 2.30.3. What is measured so holds for SMs,
waves, L2 and memory; not for NVLink, of which there is none between them. With
an older NCCL the ranks pass for two hosts and go through sockets (`job.py`):
that holds for SMs and waves alone, as NCCL's kernels wait for the network then.

Only contention is compared (`kernel_times.compared_beside`). Both ranks' NCCL
kernels are on the one GPU: they take twice the SMs, and the memory's rate for
both.
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
import functools
import pathlib
import time
from typing import Any

from benchmarks.gpu import environment
from benchmarks.gpu import job as job_lib
from benchmarks.gpu import part as part_lib
from benchmarks.gpu import rank as rank_lib

_PART = "two_ranks"
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """What NCCL is told.

  Attributes:
    num_channels: of every collective.
    buffer_bytes: NCCL_BUFFSIZE, which chunks are cut from.
  """

  num_channels: int
  buffer_bytes: int = _BUFFER_BYTES

  @property
  def environ(self) -> dict[str, str]:
    """As NCCL reads it."""
    return {
      "NCCL_MIN_CTAS": str(self.num_channels),
      "NCCL_MAX_CTAS": str(self.num_channels),
      "NCCL_BUFFSIZE": str(self.buffer_bytes),
    }

  @property
  def num_bytes(self) -> int:
    """Of an all-reduce that lasts."""
    return min(self.num_channels * _BYTES_PER_CHANNEL, _MOST_BYTES)


# What tells most comes first, as time may not suffice for all.
SETTINGS = (
  *(Setting(num_channels=n) for n in (8, 1, 32, 16, 4, 64, 2)),
  *(
    Setting(num_channels=8, buffer_bytes=size)
    for size in (_MIB // 2, 16 * _MIB, _MIB)
  ),
  Setting(num_channels=32, buffer_bytes=_MIB // 2),
)


def measure(folder: pathlib.Path) -> dict[str, Any]:
  """Measures one setting after the other, as long as there is time.

  Raises:
    JobError: no setting came to an end.
  """
  deadline_s = time.monotonic() + part_lib.own_limit_s() - _RESERVE_S
  rows: list[dict[str, Any]] = []
  with job_lib.running() as environ:
    for row in _rows(folder, dict(environ), deadline_s):
      rows.append(row)
      part_lib.keep(folder, _PART, {"rows": rows})
  if not any("step_us" in row for row in rows):
    raise job_lib.JobError(rows[0]["reason"] if rows else "There was no time.")
  return {"rows": rows}


def _rows(
  folder: pathlib.Path, environ: dict[str, str], deadline_s: float
) -> Iterator[dict[str, Any]]:
  """A row for each setting for which there is time."""
  num_failed = 0
  for index, setting in enumerate(SETTINGS):
    left_s = deadline_s - time.monotonic()
    # If the first two fail, the others will, too.
    if left_s < _LIMIT_OF_JOB_S / 2 or num_failed == index == 2:
      return
    here = folder / f"ranks{index}"
    row: dict[str, Any] = dataclasses.asdict(setting)
    row["num_bytes"] = setting.num_bytes
    job = rank_lib.Job(
      folder=str(here),
      num_bytes=setting.num_bytes,
      width=_WIDTH,
      num_layers=_NUM_LAYERS,
    )
    try:
      row["step_us"] = job_lib.run(
        job,
        {**environ, **setting.environ},
        limit_s=min(left_s, _LIMIT_OF_JOB_S),
      )
    except job_lib.JobError as error:  # The other settings may do.
      num_failed += 1
      yield row | {"reason": str(error)}
      continue
    try:
      # All traces are there by now, whatever becomes of the comparison.
      from benchmarks.gpu import kernel_times

      row |= kernel_times.compared_beside(
        here, _two(), chunk_bytes=setting.buffer_bytes // _CHUNKS_PER_BUFFER
      )
    except Exception as error:
      row["reason"] = str(error) or type(error).__name__
    yield row


@functools.cache
def _two() -> str:
  """Two of this GPU, as a cluster."""
  return f"1x2x{environment.cluster_name_elsewhere().rpartition('x')[2]}"
