# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measurements on a GPU, as far as they go without one.

Programs are compiled for H200s without a GPU, and traces have made-up times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import functools
import itertools
import json
import lzma
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.gpu import example
from benchmarks.gpu import kernels as kernels_lib
from benchmarks.gpu import part
from benchmarks.gpu import ranks as ranks_lib
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap
import xspace_text


def test_every_part_is_reported_as_not_measured_without_a_gpu(
  tmp_path: pathlib.Path,
) -> None:
  subprocess.run(
    (sys.executable, "-m", "benchmarks.gpu", f"--out={tmp_path}"), check=True
  )
  rows = json.loads((tmp_path / "gpu.json").read_text())["rows"]
  assert [row["part"] for row in rows] == list(part.PARTS)
  assert {row["status"] for row in rows} == {"not measured"}
  assert {row["reason"] for row in rows} == {
    "There is no NVIDIA GPU on this machine."
  }
  assert rows[0]["figures"]["packages"]["jax"] == jax.__version__  # Kept.
  with tarfile.open(tmp_path / "traces.tar.gz") as packed:
    assert "environment.log" in packed.getnames()


def _row(
  folder: pathlib.Path, name: str, limit_s: float = 60.0
) -> dict[str, Any]:
  """The task of a part, as on a machine with one GPU."""
  return part.run(
    part.Task(
      part=name, folder=str(folder), limit_s=limit_s, cluster="1x1xh200"
    )
  )


def test_a_part_that_fails_or_hangs_is_reported_as_failed(
  tmp_path: pathlib.Path,
) -> None:
  failed = _row(tmp_path, "no_such")
  assert failed["status"] == "failed"
  assert "no_such" in failed["reason"]
  hung = _row(tmp_path, "traced_step", limit_s=0.5)
  assert hung["status"] == "failed"
  assert hung["reason"] == "It did not end within 0 s."


def test_a_python_process_that_hangs_is_killed() -> None:
  done = part.run_python("-c", "while True: pass", limit_s=0.1)
  assert done.returncode < 0
  assert done.stderr == "It did not end within 0 s."


def test_a_part_without_its_packages_is_not_measured(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  missing = "raise ModuleNotFoundError('', name='pydantic')"
  (tmp_path / "pydantic.py").write_text(missing)
  monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
  row = _row(tmp_path, "tuner_plugin")
  assert row["status"] == "not measured"
  assert "needs the package pydantic" in row["reason"]


@pytest.mark.skipif(
  shutil.which("nvidia-cuda-mps-control") is not None, reason="MPS is here"
)
def test_two_ranks_are_not_measured_without_mps(tmp_path: pathlib.Path) -> None:
  row = _row(tmp_path, "two_ranks")
  assert row["status"] == "not measured"
  assert "There is no nvidia-cuda-mps-control" in row["reason"]


def test_a_step_is_traced_with_its_module(tmp_path: pathlib.Path) -> None:
  @functools.partial(jax.jit, donate_argnums=0)
  def train_step(state: jax.Array, batch: jax.Array) -> Any:
    return state - batch, {"loss": jnp.sum(state)}

  task = part.Task(part="traced_step", folder=str(tmp_path), limit_s=0.0)
  figures = example.traced(
    task, train_step, jnp.zeros(4), itertools.repeat(jnp.ones(4))
  )
  num_before = 13 + figures["num_traced"]
  losses = [-4.0 * (num_before + n) for n in range(figures["num_traced"])]
  assert figures["losses"] == losses
  module = hlo.load(tmp_path / "step.hlo.xz")
  assert module.is_scheduled
  trace = lzma.decompress((tmp_path / "step.xplane.pb.xz").read_bytes())
  assert module.name.encode() in trace


def run_ranks(
  folder: pathlib.Path, limit_s: float = 120.0, platform: str = "cpu"
) -> Mapping[str, Any]:
  """Runs a job on CPUs, one for each rank."""
  job = ranks_lib.Job(
    folder=str(folder), num_bytes=2**12, width=64, num_layers=1
  )
  environ = {"JAX_PLATFORMS": platform, "XLA_FLAGS": ""}
  return ranks_lib.run(job, environ, limit_s=limit_s)


@pytest.mark.parametrize(
  ("limit_s", "platform", "message"),
  [
    (0.1, "cpu", "did not end within 0 s"),
    (120.0, "no_such_platform", "no_such_platform"),
  ],
)
def test_ranks_that_fail_or_hang_raise_an_error(
  tmp_path: pathlib.Path, limit_s: float, platform: str, message: str
) -> None:
  with pytest.raises(ranks_lib.JobError, match=message):
    run_ranks(tmp_path, limit_s, platform)


def test_the_ranks_of_a_job_run_and_trace_every_program(
  tmp_path: pathlib.Path,
) -> None:
  step_us = run_ranks(tmp_path)
  assert sorted(step_us) == sorted(ranks_lib.PROGRAMS)
  assert all(time_us > 0 for times in step_us.values() for time_us in times)
  for name in ranks_lib.PROGRAMS:
    assert len(list((tmp_path / name).rglob("*.xplane.pb"))) == 1


_ONE = cluster_lib.parse("1x1xh200")
_TWO = cluster_lib.parse("1x2xh200")
_LONE_US, _BESIDE_US, _COLLECTIVE_US = 100.0, 130.0, 5000.0
_NUM_CHANNELS, _NUM_STEPS = 8, 3
_MATRIX = jax.ShapeDtypeStruct((1024, 1024), jnp.bfloat16)
_COMPUTE, _COMMUNICATION = "Stream #20(Compute)", "Stream #24"


@pytest.fixture(scope="module")
def h200s(h100s: Any) -> Any:
  del h100s  # Only says whether there is anything to compile with.
  return devices_lib.devices(_TWO)


def scheduled(
  lowered: jax.stages.Lowered, cluster: Any, **options: Any
) -> hlo.Module:
  step = lowered_lib.LoweredStep(lowered, cluster)
  return compiler.schedule(step, config_lib.XlaConfig(options=options))


def on_one_gpu(case: tuple[Any, Any], **options: Any) -> hlo.Module:
  """The schedule of a function on one H200."""
  function, args = case
  (device,) = devices_lib.devices(_ONE)
  place = jax.sharding.SingleDeviceSharding(device)
  placed = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), args
  )
  return scheduled(jax.jit(function).lower(*placed), _ONE, **options)


def write_trace(
  folder: pathlib.Path,
  module: hlo.Module,
  kernels: Iterator[xspace_text.Kernel],
) -> None:
  process = xspace_text.Process(devices=[list(kernels)], module=module)
  folder.mkdir(exist_ok=True)
  serialized = xspace_text.serialized(process)
  (folder / "host.xplane.pb").write_bytes(serialized)


def alone(module: hlo.Module) -> Iterator[xspace_text.Kernel]:
  """Steps of all kernels, one after the other."""
  begin_us = 0.0
  for _ in range(_NUM_STEPS):
    for kernel in overlap.analyze(module).kernels.values():
      yield xspace_text.Kernel(
        op=kernel.name, begin_us=begin_us, time_us=_LONE_US, stream=_COMPUTE
      )
      begin_us += _LONE_US + 1.0
    begin_us += 50.0


def beside_a_collective(
  module: hlo.Module, time_us: float
) -> Iterator[xspace_text.Kernel]:
  """Steps in which all kernels run during the only collective."""
  (collective,) = overlap.analyze(module).collectives
  begin_us = 0.0
  for _ in range(_NUM_STEPS):
    yield xspace_text.Kernel(
      op=collective.name,
      begin_us=begin_us,
      time_us=_COLLECTIVE_US,
      stream=_COMMUNICATION,
      num_blocks=_NUM_CHANNELS,
    )
    for index, kernel in enumerate(overlap.analyze(module).kernels.values()):
      yield xspace_text.Kernel(
        op=kernel.name,
        begin_us=begin_us + 10.0 + index * (time_us + 1.0),
        time_us=time_us,
        stream=_COMPUTE,
      )
    begin_us += _COLLECTIVE_US + 100.0


def test_measured_and_predicted_times_of_each_kernel_are_compared(
  h200s: Any, tmp_path: pathlib.Path
) -> None:
  del h200s
  shapes = kernels_lib.SHAPES[1:3]
  module = on_one_gpu(kernels_lib.products(shapes))
  write_trace(tmp_path, module, alone(module))
  figures = kernels_lib.compared(tmp_path, _ONE.name)
  assert sorted(row["shape"] for row in figures["kernels"]) == [
    (1, *shape) for shape in shapes
  ]
  for row in figures["kernels"]:
    assert row["measured_us"] == pytest.approx(_LONE_US)
    assert row["predicted_us"] > 0
  (kind,) = figures["by_kind"]
  assert kind["measured_us"] == pytest.approx(2 * _LONE_US)
  replayed_us = figures["step_us"]["replayed with measured kernels"]
  assert replayed_us == pytest.approx(2 * _LONE_US, rel=0.05)


@pytest.fixture
def traces(h200s: Any, tmp_path: pathlib.Path) -> pathlib.Path:
  """Traces of a rank's three programs, with made-up times."""
  mesh = jax.sharding.Mesh(np.array(h200s), ("ranks",))
  spec = jax.sharding.PartitionSpec("ranks")
  place = jax.sharding.NamedSharding(mesh, spec)

  def shape(*sizes: int, dtype: Any = jnp.bfloat16) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, dtype, sharding=place)

  def lowered(width: int) -> jax.stages.Lowered:
    pair = (shape(2 * width, width), shape(2 * width, width))
    return ranks_lib.both_of(mesh).lower(
      shape(2, 2**26, dtype=jnp.float32), [pair, pair]
    )

  both = scheduled(lowered(1024), _TWO, **ranks_lib.OPTIONS)
  tiny = scheduled(lowered(128), _TWO)
  pair = (_MATRIX, _MATRIX)
  kernels = on_one_gpu((ranks_lib.run_kernels, ([pair, pair],)))
  write_trace(tmp_path / "kernels", kernels, alone(kernels))
  in_tiny = beside_a_collective(tiny, 5.0)
  write_trace(tmp_path / "collective", tiny, in_tiny)
  in_both = beside_a_collective(both, _BESIDE_US)
  write_trace(tmp_path / "both", both, in_both)
  return tmp_path


def test_contention_is_compared_with_times_of_lone_kernels(
  traces: pathlib.Path,
) -> None:
  figures = ranks_lib.compared_beside(traces, _TWO.name, chunk_bytes=2**19)
  assert figures["num_channels"] == _NUM_CHANNELS
  assert figures["collective_us"] == pytest.approx(_COLLECTIVE_US)
  assert figures["memory_gbps"] > 0
  # Both ranks send each of 2**28 bytes once, and memory sees all of it twice.
  least_gbps = 2 * 2 * 2**28 / (_COLLECTIVE_US * 1e3)
  assert figures["memory_gbps"] >= least_gbps * 0.999
  kinds = [row["kind"] for row in figures["kernels"]]
  assert kinds.count("gemm") == 2
  assert len(kinds) > 2
  for row in figures["kernels"]:
    assert row["lone_us"] == pytest.approx(_LONE_US)
    assert row["beside_us"] == pytest.approx(_BESIDE_US)
    assert row["predicted_us"] >= row["lone_us"] * 0.999
