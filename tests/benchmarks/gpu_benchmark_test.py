# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Parts of the measurements on a GPU, as far as they go without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
import functools
import itertools
import json
import lzma
import os
import pathlib
import subprocess
import sys
import tarfile
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import job as job_lib
from benchmarks.gpu import part as part_lib
from benchmarks.gpu import rank as rank_lib
from benchmarks.gpu import traced_step
from benchmarks.gpu import tuner_plugin
from benchmarks.gpu import two_ranks
from lagom_xla.apply.nccl import table as table_lib
from lagom_xla.passes import hlo


def test_without_a_gpu_every_part_says_that_it_was_not_measured(
  tmp_path: pathlib.Path,
) -> None:
  done = subprocess.run(
    (
      *(sys.executable, "-m", "benchmarks.gpu", "--format=json"),
      f"--out={tmp_path}",
    ),
    check=True,
    capture_output=True,
    text=True,
  )
  rows = json.loads(done.stdout)["rows"]
  assert [row["part"] for row in rows] == [part.name for part in command.PARTS]
  assert {row["status"] for row in rows} == {"not measured"}
  assert {row["reason"] for row in rows} == {
    "There is no NVIDIA GPU on this machine."
  }
  assert rows[0]["figures"]["packages"]["jax"] == jax.__version__
  assert json.loads((tmp_path / "gpu.json").read_text())["rows"] == rows


def test_all_parts_together_take_less_than_nine_minutes() -> None:
  assert command._LIMIT_S < 9 * 60


def test_a_part_that_fails_leaves_the_others(tmp_path: pathlib.Path) -> None:
  def part(name: str, limit_s: float) -> part_lib.Part:
    return part_lib.Part(name=name, limit_s=limit_s, what=name)

  unknown, slow, sound = command.measure(
    [part("no_such", 60), part("traced_step", 0.01), part("environment", 60)],
    tmp_path,
    limit_s=120,
  )
  assert unknown["status"] == "failed"
  assert "no_such" in unknown["reason"]
  assert slow["status"] == "failed"
  assert slow["reason"] == "It did not end within 0 s."
  assert sound["status"] == "not measured"


def test_a_machine_without_our_packages_is_told_what_is_missing(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n")
  (tmp_path / "nvidia-smi").chmod(0o755)
  missing = "raise ModuleNotFoundError('', name='pydantic')"
  (tmp_path / "pydantic.py").write_text(missing)
  monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
  monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
  out = tmp_path / "out"
  part = part_lib.Part(name="tuner_plugin", limit_s=60, what="")
  (row,) = command.measure([part], out, limit_s=60)
  assert row["status"] == "not measured"
  assert "has no package pydantic here" in row["reason"]
  assert "v6" in row["figures"]["interfaces"]
  with tarfile.open(out / "traces.tar.gz") as packed:
    assert packed.getnames() == ["tuner_plugin.log"]


def test_what_a_part_kept_outlives_it(tmp_path: pathlib.Path) -> None:
  part_lib.keep(tmp_path, "traced_step", {"model": "small"})
  part = part_lib.Part(name="traced_step", limit_s=0.01, what="")
  row = part_lib.run(part, tmp_path, limit_s=60)
  assert (row.status, row.figures) == ("failed", {"model": "small"})


def test_a_step_is_traced_with_its_module(tmp_path: pathlib.Path) -> None:
  @functools.partial(jax.jit, donate_argnums=0)
  def train_step(state: jax.Array, batch: jax.Array) -> Any:
    return state - batch, {"loss": jnp.sum(state)}

  figures = traced_step.traced(
    tmp_path, train_step, jnp.zeros(4), itertools.repeat(jnp.ones(4))
  )
  num_before = 13 + figures["num_traced"]
  losses = [-4.0 * (num_before + n) for n in range(figures["num_traced"])]
  assert figures["losses"] == losses
  module = hlo.load(tmp_path / "step.hlo.xz")
  assert module.is_scheduled
  trace = lzma.decompress((tmp_path / "step.xplane.pb.xz").read_bytes())
  assert module.name.encode() in trace


def test_the_table_has_a_rule_that_nccl_would_never_choose(
  tmp_path: pathlib.Path,
) -> None:
  path = tmp_path / "nccl_table.bin"
  environ = tuner_plugin.with_table(
    path, pathlib.Path("/plugin.so"), num_nodes=1
  )
  assert environ["NCCL_TUNER_PLUGIN"] == "/plugin.so"
  (rule,) = table_lib.read(path).rules
  assert (rule.kind, rule.num_ranks, rule.num_channels) == ("all-reduce", 2, 3)


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
