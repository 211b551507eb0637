# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Two ranks on one GPU: kernels beside a real NCCL, at many settings.

NCCL lets ranks share a GPU since 2.30.3. What is measured so holds for SMs,
waves, L2 and memory; not for NVLink, of which there is none between them. With
an older NCCL the ranks pass for two hosts and go through sockets (`job.py`):
that holds for SMs and waves alone, as NCCL's kernels wait for the network then.

What `costs/contention.py` is given is what was measured alone: the kernels'
times, the all-reduce's time and its channels. So only contention is compared.
Both ranks' NCCL kernels are on the one GPU: they take twice the SMs, and the
memory's rate for both.
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
import functools
import pathlib
import statistics
import time
from typing import TYPE_CHECKING, Any

from benchmarks.gpu import job as job_lib
from benchmarks.gpu import live_gpu
from benchmarks.gpu import part as part_lib

if TYPE_CHECKING:
  from lagom_xla import cluster as cluster_lib
  from lagom_xla.costs import collective as collective_lib
  from lagom_xla.profiling import profile as profile_lib

_NUM_RANKS = 2


def compared(
  folder: pathlib.Path, cluster: cluster_lib.Cluster, *, chunk_bytes: int
) -> dict[str, Any]:
  """What kernels and the all-reduce lost to each other.

  Args:
    folder: with the traces of `rank.PROGRAMS`.
    cluster: two of this GPU.
    chunk_bytes: that a channel hands on at a time.
  """
  from lagom_xla.profiling import profile as profile_lib

  alone = profile_lib.read(folder / "kernels")
  collective = profile_lib.read(folder / "collective")
  both = profile_lib.read(folder / "both")
  cost = _cost(collective, cluster, chunk_bytes)
  return {
    "num_channels": cost.num_channels // _NUM_RANKS,
    "collective_us": cost.time_us,
    "memory_gbps": cost.memory_gbps,
    "kernels": _kernels(alone, both, cost, cluster),
    "collective": _collective(both, cost),
  }


def _cost(
  profile: profile_lib.Profile,
  cluster: cluster_lib.Cluster,
  chunk_bytes: int,
) -> collective_lib.CollectiveCost:
  """What the all-reduce takes of the GPU, both ranks' parts together."""
  from lagom_xla.costs import collective as collective_lib

  (found,) = profile.analysis.collectives
  key = collective_lib.tuning_key(found, cluster)
  setting = dataclasses.replace(
    collective_lib.default_setting(key, cluster),
    num_channels=profile.num_channels[found.name],
    chunk_bytes=chunk_bytes,
  )
  predicted = collective_lib.predict(key, setting, cluster)
  time_us = profile.own_us[found.name]
  return dataclasses.replace(
    predicted,
    time_us=time_us,
    num_channels=_NUM_RANKS * predicted.num_channels,
    # As many bytes in the time that it took here.
    memory_gbps=(
      _NUM_RANKS * predicted.memory_gbps * predicted.time_us / time_us
    ),
  )


def _kernels(
  alone: profile_lib.Profile,
  both: profile_lib.Profile,
  cost: collective_lib.CollectiveCost,
  cluster: cluster_lib.Cluster,
) -> list[dict[str, Any]]:
  """A row for each kernel that ran beside the all-reduce from start to end."""
  from lagom_xla.costs import contention
  from lagom_xla.costs import kernel as kernel_lib
  from lagom_xla.costs import measured as measured_lib
  from lagom_xla.profiling import costing
  from lagom_xla.profiling import profile as profile_lib

  priced = costing.of_profile(alone, cluster).measured
  times: dict[str, list[float]] = {}
  for run in both.kernel_runs:
    if run.share >= profile_lib.COVERED:
      times.setdefault(run.name, []).append(run.time_us)
  rows = []
  for name, beside_us in times.items():
    kernel = both.kernels[name]
    lone_us = priced.work_us.get(measured_lib.work_of(kernel))
    if lone_us is None:
      continue
    lone = priced.kernel(kernel, kernel_lib.predict(kernel, cluster.gpu))
    predicted = contention.beside(lone, cost, cluster.gpu)
    rows.append(
      {
        "kind": kernel.category,
        "shape": kernel.matrix_shape,
        "num_bytes": kernel.num_bytes,
        "num": len(beside_us),
        "lone_us": lone_us,
        "beside_us": statistics.median(beside_us),
        "predicted_us": predicted.kernel_us - lone.gap_us,
      }
    )
  return rows


def _collective(
  both: profile_lib.Profile, cost: collective_lib.CollectiveCost
) -> dict[str, float]:
  (found,) = both.analysis.collectives
  beside_us = both.own_us[found.name]
  return {"lone_us": cost.time_us, "beside_us": beside_us}


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
  live_gpu.check_is_there()
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
    row: dict[str, Any] = dataclasses.asdict(setting)
    job = job_of(folder / f"ranks{index}", setting, environ, left_s)
    try:
      row |= {"num_bytes": job.num_bytes, "step_us": job_lib.run(job)}
    except job_lib.JobError as error:  # The other settings may do.
      num_failed += 1
      yield row | {"reason": str(error)}
      continue
    try:
      row |= _compared(job, setting)
    except Exception as error:  # Traces and times are there all the same.
      row["reason"] = str(error) or type(error).__name__
    yield row


def job_of(
  folder: pathlib.Path,
  setting: Setting,
  environ: dict[str, str],
  left_s: float,
) -> job_lib.Job:
  """The job of a setting.

  Args:
    folder: for its traces.
    setting: of NCCL.
    environ: beside that.
    left_s: of the time for all jobs.
  """
  return job_lib.Job(
    folder=folder,
    num_bytes=setting.num_bytes,
    width=_WIDTH,
    num_layers=_NUM_LAYERS,
    environ={**environ, **setting.environ},
    limit_s=min(left_s, _LIMIT_OF_JOB_S),
  )


def _compared(job: job_lib.Job, setting: Setting) -> dict[str, Any]:
  """What a job measured beside what is predicted."""
  return compared(
    job.folder,
    _cluster(),
    chunk_bytes=setting.buffer_bytes // _CHUNKS_PER_BUFFER,
  )


@functools.cache
def _cluster() -> Any:
  """Two of this GPU."""
  from lagom_xla import cluster as cluster_lib

  gpu = live_gpu.cluster_name_elsewhere().rpartition("x")[2]
  return cluster_lib.parse(f"1x2x{gpu}")
