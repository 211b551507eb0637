# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Parts of the measurements on a GPU, as far as they go without one."""

from __future__ import annotations

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
from benchmarks.gpu import part as part_lib
from benchmarks.gpu import traced_step
from benchmarks.gpu import tuner_plugin
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
