# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Environment of the measurements: GPU, driver, NCCL, packages and tools.

    python -m benchmarks.gpu.environment

prints the cluster that this machine's GPU makes up, in a process that takes no
memory of it for longer.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import pathlib
import platform
import shutil
import subprocess
import sys
from typing import Any

from benchmarks.gpu import part as part_lib

_LIMIT_S = 60.0
# Of the packages those whose names begin so.
_PACKAGES = ("jax", "nvidia-", "flax", "optax", "protobuf", "pydantic", "numpy")
_TOOLS = ("cc", "gcc", "nvcc", "nvidia-cuda-mps-control")
_QUERY = (
  *("name", "driver_version", "memory.total", "clocks.max.sm"),
  *("clocks.max.memory", "power.limit", "compute_mode", "pstate"),
)


def measure(folder: pathlib.Path) -> dict[str, Any]:
  """What all other figures were measured on."""
  figures: dict[str, Any] = {
    "python": platform.python_version(),
    "kernel": platform.release(),
    "packages": {
      it.name: it.version
      for it in importlib.metadata.distributions()
      if (it.name or "").startswith(_PACKAGES)
    },
    "tools": {tool: shutil.which(tool) for tool in _TOOLS},
  }
  # Kept even where there is no GPU: it says what could be measured with one.
  part_lib.keep(folder, "environment", figures)
  check()
  import jax

  said = subprocess.run(
    ("nvidia-smi", f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader"),
    check=True,
    capture_output=True,
    text=True,
    timeout=20,
  ).stdout
  values = map(str.strip, said.splitlines()[0].split(","))
  figures["gpu"] = dict(zip(_QUERY, values, strict=True))
  figures["devices"] = [device.device_kind for device in jax.devices()]
  part_lib.keep(folder, "environment", figures)
  figures["cluster"] = cluster_name()
  return figures


def check() -> None:
  """Checks that JAX has a GPU here, which this process then holds.

  Raises:
    NotMeasuredError: it has none.
  """
  part_lib.check_is_there()
  import jax

  if jax.default_backend() != "gpu":
    raise part_lib.NotMeasuredError(
      f"JAX {jax.__version__} runs on {jax.default_backend()} here: its CUDA"
      " plugin is not installed, or does not load."
    )


def cluster_name() -> str:
  """This process's GPUs as a cluster, such as "1x1xh200".

  Raises:
    NotMeasuredError: the GPU is of no kind that lagom_xla knows.
  """
  import jax

  from lagom_xla import cluster as cluster_lib
  from lagom_xla import errors

  try:
    return cluster_lib.of_devices(jax.local_devices()).name
  except errors.ClusterError as error:
    raise part_lib.NotMeasuredError(str(error)) from error


@functools.cache
def several(num_gpus: int) -> str:
  """So many of this machine's GPU as a cluster.

  Asks a process that ends, for parts whose own ones use the GPU.

  Raises:
    NotMeasuredError: there is no GPU that JAX can use, or an unknown one.
  """
  done = run("benchmarks.gpu.environment")
  if done.returncode:
    raise part_lib.NotMeasuredError(
      done.stderr.strip().rpartition("\n")[2] or "JAX finds no GPU."
    )
  return f"1x{num_gpus}x{done.stdout.strip().rpartition('x')[2]}"


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
  """Runs a module in a process that takes no more of the GPU than it uses.

  Raises:
    subprocess.TimeoutExpired: it did not end within a minute.
  """
  return subprocess.run(
    (sys.executable, "-m", module, *arguments),
    cwd=part_lib.ROOT,
    env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    capture_output=True,
    text=True,
    timeout=_LIMIT_S,
  )


if __name__ == "__main__":
  try:
    check()
    print(cluster_name())
  except part_lib.NotMeasuredError as error:
    sys.exit(str(error))
