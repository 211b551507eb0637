# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Environment of the measurements: GPU, driver, NCCL, packages and tools."""

from __future__ import annotations

import ctypes
import importlib.metadata
import pathlib
import platform
import shutil
import subprocess
from typing import Any

from benchmarks.gpu import live_gpu
from benchmarks.gpu import part as part_lib

_PACKAGES = (
  *("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin"),
  *("nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cudnn-cu12"),
  *("nvidia-cudnn-cu13", "flax", "optax", "protobuf", "pydantic", "numpy"),
)
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
    "packages": packages(),
    "tools": {tool: shutil.which(tool) for tool in _TOOLS},
    "nccl": nccl_version(),
  }
  # Kept even where there is no GPU: it says what could be measured with one.
  part_lib.keep(folder, "environment", figures)
  live_gpu.check()
  import jax

  figures["gpu"] = _queried()
  figures["devices"] = [device.device_kind for device in jax.devices()]
  part_lib.keep(folder, "environment", figures)
  figures["cluster"] = live_gpu.cluster_name()
  return figures


def packages() -> dict[str, str]:
  """The versions of what is installed of the packages that matter."""
  found = {}
  for package in _PACKAGES:
    try:
      found[package] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      continue
  return found


def nccl_version() -> str | None:
  """NCCL's version as its library says it; None where there is none."""
  from lagom_xla.costs import in_words
  from lagom_xla.doctor import trials

  library = trials.nccl_of_wheel()
  if library is None:
    return None
  version = ctypes.c_int()
  try:
    ctypes.CDLL(str(library)).ncclGetVersion(ctypes.byref(version))
  except OSError:
    return None
  return in_words.nccl_version(version.value)


def _queried() -> dict[str, str]:
  """What nvidia-smi says of the first GPU."""
  said = subprocess.run(
    ("nvidia-smi", f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader"),
    check=True,
    capture_output=True,
    text=True,
    timeout=20,
  ).stdout
  values = [value.strip() for value in said.splitlines()[0].split(",")]
  return dict(zip(_QUERY, values, strict=True))
