# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ranks that share a GPU, run on CPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
import pathlib
from typing import Any

import pytest

from benchmarks.gpu import job as job_lib
from benchmarks.gpu import part as part_lib
from benchmarks.gpu import rank as rank_lib
from benchmarks.gpu import two_ranks

Ranks = Callable[..., job_lib.Job]


@pytest.fixture
def ranks(tmp_path: pathlib.Path) -> Ranks:
  """Jobs on CPUs, one for each rank."""

  def job(limit_s: float = 120.0, **environ: str) -> job_lib.Job:
    return job_lib.Job(
      folder=tmp_path,
      num_bytes=2**12,
      width=64,
      num_layers=1,
      environ={"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", **environ},
      limit_s=limit_s,
    )

  return job


def test_the_ranks_of_a_job_run_different_kernels_beside_one_collective(
  ranks: Ranks,
) -> None:
  job = ranks()
  step_us: Mapping[str, Any] = job_lib.run(job)
  assert sorted(step_us) == sorted(rank_lib.PROGRAMS)
  assert all(time_us > 0 for times in step_us.values() for time_us in times)
  for name in rank_lib.PROGRAMS:
    assert len(list((job.folder / name).rglob("*.xplane.pb"))) == 1


def test_ranks_that_do_not_end_are_ended(ranks: Ranks) -> None:
  with pytest.raises(job_lib.JobError, match="did not end within 0 s"):
    job_lib.run(ranks(limit_s=0.1))


def test_a_rank_that_fails_ends_the_job(ranks: Ranks) -> None:
  with pytest.raises(job_lib.JobError, match="no_such_platform"):
    job_lib.run(ranks(JAX_PLATFORMS="no_such_platform"))


def test_every_setting_has_its_own_job(tmp_path: pathlib.Path) -> None:
  jobs = [
    two_ranks.job_of(tmp_path, setting, {"A": "b"}, 10.0)
    for setting in two_ranks.SETTINGS
  ]
  told = {
    (job.environ["NCCL_MAX_CTAS"], job.environ["NCCL_BUFFSIZE"]) for job in jobs
  }
  assert len(told) == len(two_ranks.SETTINGS)
  channels = {int(job.environ["NCCL_MAX_CTAS"]) for job in jobs}
  assert (min(channels), max(channels)) == (1, 64)
  assert all(job.environ["A"] == "b" and job.limit_s == 10.0 for job in jobs)


def test_without_mps_two_ranks_are_not_measured(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.setattr(job_lib, "_CONTROL", "no-such-control")
  with pytest.raises(part_lib.NotMeasuredError, match="no-such-control"):
    with job_lib.running():
      pass


@pytest.mark.parametrize(
  ("nccl", "is_shared"), [("2.28.9", False), ("2.30.3", True), ("2.32.3", True)]
)
def test_an_older_nccl_takes_ranks_of_one_gpu_for_hosts(
  nccl: str, is_shared: bool
) -> None:
  environs = [job_lib.shared_by(nccl, process_id) for process_id in range(2)]
  assert job_lib.shares_memory(nccl) is is_shared
  hosts = {environ.get("NCCL_HOSTID") for environ in environs}
  assert len(hosts) == (1 if is_shared else 2)
