# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The GPU of this machine: whether there is one, and what it is."""

from __future__ import annotations

import os

# The parts import this module before anything else of ours.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import glob

from benchmarks.gpu import part as part_lib


def check() -> None:
  """Checks that JAX has a GPU here.

  Raises:
    NotMeasuredError: it has none.
  """
  if not glob.glob("/dev/nvidia[0-9]*"):
    raise part_lib.NotMeasuredError("There is no NVIDIA GPU on this machine.")
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
