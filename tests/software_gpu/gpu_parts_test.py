# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The parts of benchmarks.gpu finish on software GPUs.

Their times are only the configured ones. `python -m benchmarks.gpu --brief` on
software GPUs also runs the parts that compile more.
"""

from __future__ import annotations

from collections.abc import Callable
import functools
import itertools
import json
import pathlib
import tarfile
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import example
from benchmarks.gpu import part

_NUM_SMS = 132
_KERNEL_US = 2.0
_PARTS = ("lone_kernels", "tuner_plugin", "two_ranks")
# All kernels take the same time here, whichever would be chosen.
_UNTUNED = {"XLA_FLAGS": "--xla_gpu_autotune_level=0"}


def parts() -> None:
  command.main(["--brief", f"--only={','.join(_PARTS)}", "--out=out"])


def test_benchmark_parts_finish_and_name_the_device(
  on_gpus: Callable[..., str], tmp_path: pathlib.Path
) -> None:
  on_gpus(parts, variables=_UNTUNED, KERNEL_US=_KERNEL_US)
  rows = json.loads((tmp_path / "out" / "gpu.json").read_text())["rows"]
  assert [row["part"] for row in rows] == ["environment", *_PARTS]
  assert [row["status"] for row in rows] == ["measured"] * len(rows), rows
  assert all("(software GPU)" in row["device"] for row in rows)
  figures = {row["part"]: row["figures"] for row in rows}
  environment = figures["environment"]
  assert environment["cluster"] == "1x2xh100"
  assert environment["gpu"]["name"] == environment["device"]
  for kind in ("products", "fusions"):
    kernels = figures["lone_kernels"][kind]["kernels"]
    times_us = [kernel["measured_us"] for kernel in kernels]
    assert times_us and times_us == pytest.approx([_KERNEL_US] * len(times_us))
  plugin = figures["tuner_plugin"]
  assert plugin["one rank"]["is_loaded"]
  asked_for = plugin["two ranks"]["asked_for_channels"]
  assert set(plugin["two ranks"]["channels"].values()) == {asked_for}
  assert plugin["two ranks"]["num_applied"] > 0
  with tarfile.open(tmp_path / "out" / "traces.tar.gz") as packed:
    (log,) = (it for it in packed if it.name == "ranks0/rank1.log")
    said = packed.extractfile(log)
    assert said and b"rank 1 of 2 on device 1" in said.read()
  (setting,) = figures["two_ranks"]["rows"]
  left = 1 - setting["num_channels"] / _NUM_SMS
  assert setting["kernels"]
  for kernel in setting["kernels"]:
    assert kernel["lone_us"] == pytest.approx(_KERNEL_US)
    # A trace has nanoseconds.
    assert kernel["beside_us"] == pytest.approx(_KERNEL_US / left, abs=2e-3)


@functools.partial(jax.jit, donate_argnums=0)
def train_step(state: jax.Array, batch: jax.Array) -> Any:
  return state - batch, {"loss": jnp.sum(state @ batch)}


def a_step() -> None:
  task = part.Task(
    part="decorated", folder=".", limit_s=0.0, cluster="1x1xh100"
  )
  state, batch = jnp.zeros((64, 64)), jnp.ones((64, 64))
  batches = itertools.repeat(batch)
  traced = example.traced(task, train_step, state, batches)
  tuned = example.beside_tuned(
    task, train_step, jnp.zeros((64, 64)), batches, training_s=0.5
  )
  print(json.dumps({"traced": traced, "tuned": tuned}))


def test_a_step_is_traced_and_timed_against_its_tuned_version(
  on_gpus: Callable[..., str], tmp_path: pathlib.Path
) -> None:
  said = on_gpus(a_step, num_devices=1)
  found = json.loads(said.splitlines()[0])
  times_us = found["traced"]["step_us"]
  assert times_us.keys() == {"as jit compiles it", "without command buffers"}
  assert (tmp_path / "step.xplane.pb.xz").exists()
  tuned = found["tuned"]
  assert len(tuned["losses"]) == 10
  assert "1 NVIDIA H100 80GB HBM3 (software GPU)" in tuned["report"]
  assert tuned["step_us"].keys() == {"plain", "tuned"}
  kept = json.loads((tmp_path / "decorated.json").read_text())
  assert kept["num_steps"] == tuned["num_steps"] >= 10
