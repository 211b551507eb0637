# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The GPU of this machine: whether there is one, and what it is.

    python -m benchmarks.gpu.live_gpu

prints the cluster that it makes up, in a process that takes no memory of it for
longer.
"""

from __future__ import annotations

import glob
import os
import pathlib
import shutil
import subprocess
import sys

from benchmarks.gpu import part as part_lib

_ROOT = pathlib.Path(__file__).parents[2]
_LIMIT_S = 60.0


def check() -> None:
  """Checks that JAX has a GPU here, which this process then holds.

  Raises:
    NotMeasuredError: it has none.
  """
  check_is_there()
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


def cluster_name_elsewhere() -> str:
  """The same, by a process that ends, for parts whose own ones use the GPU.

  Raises:
    NotMeasuredError: there is no GPU that JAX can use, or an unknown one.
  """
  check_is_there()
  done = run(__name__)
  if done.returncode:
    raise part_lib.NotMeasuredError(
      done.stderr.strip().rpartition("\n")[2] or "JAX finds no GPU."
    )
  return done.stdout.strip()


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
  """Runs a module in a process that takes no more of the GPU than it uses.

  Raises:
    subprocess.TimeoutExpired: it did not end within a minute.
  """
  return subprocess.run(
    (sys.executable, "-m", module, *arguments),
    cwd=_ROOT,
    env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    capture_output=True,
    text=True,
    timeout=_LIMIT_S,
  )


def check_is_there() -> None:
  """Checks that there is a GPU, which nobody holds for that.

  Raises:
    NotMeasuredError: there is none.
  """
  # Without this, JAX would be imported for nothing.
  if not (glob.glob("/dev/nvidia[0-9]*") or shutil.which("nvidia-smi")):
    raise part_lib.NotMeasuredError("There is no NVIDIA GPU on this machine.")


def _main() -> None:
  try:
    check()
    print(cluster_name())
  except part_lib.NotMeasuredError as error:
    sys.exit(str(error))


if __name__ == "__main__":
  _main()
