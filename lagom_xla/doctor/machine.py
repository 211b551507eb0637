# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The machine itself: versions, cores, memory, and the folder of compiles."""

from __future__ import annotations

from collections.abc import Iterator
import glob
import importlib.metadata
import pathlib
import platform
import re

from lagom_xla.compile import cache
from lagom_xla.compile import pool
from lagom_xla.costs import in_words
from lagom_xla.doctor import checkup
from lagom_xla.validation import place

_PACKAGES = re.compile(r"lagom-xla|jax|jaxlib|jax-cuda\d+-(plugin|pjrt)|numpy")
# Only Linux tells what is free without paging anything out.
MEMORY = pathlib.Path("/proc/meminfo")
_FREE = re.compile(r"MemAvailable: +(\d+) kB")
# Of a container: what it may use, and what it does, where it is limited.
_LIMIT = pathlib.Path("/sys/fs/cgroup/memory.max")
_USED = pathlib.Path("/sys/fs/cgroup/memory.current")


def versions() -> Iterator[checkup.Version]:
  """What is installed of what a compile depends on."""
  yield checkup.Version(package="python", version=platform.python_version())
  found = {
    name: distribution.version
    for distribution in importlib.metadata.distributions()
    if _PACKAGES.fullmatch(name := distribution.metadata["Name"].lower())
  }
  for name in sorted(found):
    yield checkup.Version(package=name, version=found[name])


def num_gpus() -> int:
  """The GPUs that the driver shows, whatever JAX makes of them."""
  return len(glob.glob("/dev/nvidia[0-9]*"))


def workers(worker_bytes: int) -> checkup.Finding:
  """The cores and the memory that compiles have.

  Args:
    worker_bytes: memory that a process took which compiled a small step; 0
      where that is not known.
  """
  free_bytes = _free_bytes()
  num_cores = pool.num_cores()
  found = f"{in_words.count(num_cores, 'core')}, "
  if free_bytes is None:
    found += "free memory not known"
  else:
    found += f"{free_bytes / 1e9:.1f} GB free"
  status: checkup.Status = "works"
  advice = ""
  if worker_bytes:
    found += f"; a small compile took {worker_bytes / 1e9:.1f} GB"
  if worker_bytes and free_bytes is not None:
    num_fitting = free_bytes // worker_bytes
    if num_fitting < num_cores:
      status = "fails"
      advice = f"Pass --workers={num_fitting}, as more do not fit."
  return checkup.Finding(
    name="workers",
    status=status,
    is_essential=False,
    found=found,
    advice=advice,
  )


def _free_bytes() -> int | None:
  """Memory that processes can still have; None where no file tells it."""
  try:
    match = _FREE.search(MEMORY.read_text())
  except OSError:
    return None
  if match is None:
    return None
  free = int(match[1]) * 1024
  try:
    limit = _LIMIT.read_text().strip()
    if limit != "max":
      return min(free, int(limit) - int(_USED.read_text()))
  except OSError:  # No container, or one of cgroup version 1.
    pass
  return free


def compile_cache() -> checkup.Finding:
  """Whether what is compiled can be kept."""
  folder = cache.folder_of_user()
  status: checkup.Status = "works"
  advice = ""
  if folder is None:
    found = "off, by LAGOM_XLA_CACHE"
  else:
    found = f"{folder} can be written"
    try:
      place.check_can_make(folder / "any")
    except OSError as error:
      status, found = "fails", f"{folder} cannot be written: {error.strerror}"
      advice = "Name another folder in LAGOM_XLA_CACHE."
  return checkup.Finding(
    name="cache",
    status=status,
    is_essential=False,
    found=found,
    advice=advice,
  )
